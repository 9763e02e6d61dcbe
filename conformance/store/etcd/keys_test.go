package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// A server on an etcd makes no key for tokens of service accounts: it says which flag is missing, and leaves nothing in
// the data directory. A key that is there already is used.
//
// SPEC: STORE-2
func TestNoOwnKey(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "serve", "--secure-port=0", "--data-dir", dir,
		"--etcd-servers="+p.URL).CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(output), "--service-account-signing-key-file") {
		t.Errorf("%v: %s", err, output)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has left a data directory behind: %v", err)
	}
	if keys := keysUnder(t, etcdClient(t, p.URL), "namespaces"); len(keys) > 0 {
		t.Errorf("it has written %d namespaces", len(keys))
	}
}

// What one server signs is good at another one: the certificate of its administrator, a token of a service account, and
// the certificate of an approved request, whichever server runs the controllers.
//
// SPEC: STORE-2
func TestCredentialsOfAnother(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	all := atOnceWith(t, p.URL, []string{"--controllers=*"}, harness.Plinth, harness.Plinth)
	for i, s := range all {
		other := all[1-i]
		config, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		there, err := other.Config()
		if err != nil {
			t.Fatal(err)
		}
		config.Host = there.Host // all else is that of s, the authority of servers, too
		whoIs(t, config, "plinth-admin")

		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		name := []string{"one", "two"}[i]
		if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name,
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bearer := rest.AnonymousClientConfig(there)
		bearer.Host, bearer.BearerToken = all[i].URL, token.Status.Token
		whoIs(t, bearer, "system:serviceaccount:default:"+name)

		signed := rest.AnonymousClientConfig(there)
		signed.CertData, signed.KeyData = requestCertificate(t, client, name)
		for _, at := range all {
			signed.Host = at.URL
			whoIs(t, signed, name)
		}
	}
}

// whoIs requires that a client is a certain user.
func whoIs(t *testing.T, config *rest.Config, want string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the user is another one", func() error {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil && review.Status.UserInfo.Username != want {
			err = errors.New(review.Status.UserInfo.Username)
		}
		return err
	})
}

// requestCertificate has a certificate for a user signed.
func requestCertificate(t *testing.T, client kubernetes.Interface, user string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}},
		private)
	if err != nil {
		t.Fatal(err)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "kubernetes.io/kube-apiserver-client",
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Tested"})
	if _, err := requests.UpdateApproval(t.Context(), user, request, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is not signed", func() error {
		request, err = requests.Get(t.Context(), user, metav1.GetOptions{})
		if err == nil && len(request.Status.Certificate) == 0 {
			err = errors.New("there is no certificate")
		}
		return err
	})
	if der, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		t.Fatal(err)
	}
	return request.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
