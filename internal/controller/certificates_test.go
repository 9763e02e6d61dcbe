package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// signing is a bench with the controllers of CertificateSigningRequests, whose clock the test sets.
type signing struct {
	*bench
	Certificates
	key *ecdsa.PrivateKey // of the user who requests a certificate
	now time.Time
	// allowed are the subresources that the authorizer allows to create, and asked those that it was called for.
	allowed, asked []string
}

func newSigning(t *testing.T) *signing {
	t.Helper()
	s := &signing{bench: newBench(t), now: time.Now().Truncate(time.Second), key: newKey(t)}
	authority := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: s.now.Add(-time.Hour), NotAfter: s.now.AddDate(5, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, authority.Public(), authority)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s.Certificates = Certificates{Engine: s.bench.Engine, Registry: s.bench.Registry,
		Logger: slog.New(slog.DiscardHandler),
		Now:    func() time.Time { return s.now }, Authority: parsed, PrivateKey: authority, Life: 365 * 24 * time.Hour,
		Authorizer: s}
	return s
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Authorize implements access.Authorizer.
func (s *signing) Authorize(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s.%s/%s", a.User.Name, a.Verb, a.Resource, a.Group, a.Subresource))
	if slices.Contains(s.allowed, a.Subresource) {
		return access.Allow, "", nil
	}
	return access.NoOpinion, "", nil
}

// pkcs10 is a PKCS #10 request in the form of spec.request.
func (s *signing) pkcs10(template *x509.CertificateRequest, damage bool) string {
	s.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, s.key)
	if err != nil {
		s.Fatal(err)
	}
	if damage {
		der = slices.Clone(der)
		at := strings.Index(string(der), template.Subject.CommonName)
		der[at]++ // the signature is of another name
	}
	return base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// request creates a CertificateSigningRequest of a user, and returns it as the controllers see it with this status. The
// status is stored only if it is the condition Approved alone, which validation allows an approver to write.
func (s *signing) request(user, signer string, template *x509.CertificateRequest, usages, seconds,
	status string) *signingRequest {
	s.Helper()
	of := s.bench.Registry.Builtin().Find("certificates.k8s.io", "v1", "certificatesigningrequests")
	body, err := object.ParseJSON(fmt.Appendf(nil,
		`{"metadata":{"generateName":"r-"},"spec":{"request":%q,"signerName":%q,"usages":[%s]%s}}`,
		s.pkcs10(template, false), signer, usages, seconds))
	if err != nil {
		s.Fatal(err)
	}
	rq := s.bench.Request("", "", "")
	rq.Resource, rq.User = of, access.User{Name: user, Groups: []string{"g"}}
	made, err := s.bench.Create(s.Context(), rq, body)
	if err != nil {
		s.Fatal(err)
	}
	obj, err := parsed(made.Object)
	if err != nil {
		s.Fatal(err)
	}
	if status != "" {
		with, err := object.ParseJSON([]byte(status))
		if err != nil {
			s.Fatal(err)
		}
		obj = obj.With("status", with.Value)
	}
	r := &signingRequest{&s.Certificates, of, made.Object, obj}
	if _, ok := r.is("Approved"); !ok || obj.At("status", "conditions").Len() != 1 || r.issued() {
		return r
	}
	if err := r.write(s.Context(), "approval", obj); err != nil {
		s.Fatal(err)
	}
	rq.Name = made.Object.Key.Name
	got, err := s.bench.Get(s.Context(), rq, "")
	if err != nil {
		s.Fatal(err)
	}
	r.live = got.Object
	return r
}

// status is the status of a request as it is stored now; false if the request is gone.
func (s *signing) status(r *signingRequest) (object.Value, bool) {
	s.Helper()
	rq := s.bench.Request("", "", r.live.Key.Name)
	rq.Resource = r.of
	got, err := s.bench.Get(s.Context(), rq, "")
	if err != nil {
		return object.Nil, false
	}
	obj, err := parsed(got.Object)
	if err != nil {
		s.Fatal(err)
	}
	return obj.At("status"), true
}

// condition is a condition of a status, last updated some time before now.
func (s *signing) condition(typ string, ago time.Duration) string {
	return fmt.Sprintf(`{"type":%q,"status":"True","lastUpdateTime":%q}`, typ,
		s.now.Add(-ago).UTC().Format(time.RFC3339))
}

const clientUsages = `"client auth","digital signature"`

func ofNode(name string) *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}}
}

// A request is signed when it is approved, and neither denied nor failed nor signed before.
//
// SPEC: AUTH-1
func TestWhichRequestsAreSigned(t *testing.T) {
	s := newSigning(t)
	approved, denied, failed := s.condition("Approved", 0), s.condition("Denied", 0), s.condition("Failed", 0)
	for _, c := range []struct {
		signer, status string
		signed         bool
	}{
		{clientSigner, `{}`, false},
		{clientSigner, `{"conditions":[` + approved + `]}`, true},
		{kubeletClientSigner, `{"conditions":[` + approved + `]}`, true},
		{"example.com/signer", `{"conditions":[` + approved + `]}`, false},
		{clientSigner, `{"conditions":[` + denied + `]}`, false},
		{clientSigner, `{"conditions":[` + approved + `,` + denied + `]}`, false},
		{clientSigner, `{"conditions":[` + approved + `,` + failed + `]}`, false},
		{clientSigner, `{"certificate":"YQ==","conditions":[` + approved + `]}`, false},
		{clientSigner, strings.Replace(`{"conditions":[`+approved+`]}`, `"True"`, `"False"`, 1), false},
	} {
		r := s.request("jane", c.signer, ofNode("n"), clientUsages, "", c.status)
		if err := r.sign(s.Context()); err != nil {
			t.Errorf("%s %s: %v", c.signer, c.status, err)
		}
		status, _ := s.status(r)
		if signed := status.At("certificate").Str() != ""; signed != c.signed {
			t.Errorf("%s with the status %s: signed %v, want %v", c.signer, c.status, signed, c.signed)
		}
	}
}

// A certificate has the subject and usages of its request, and is signed by the authority; a request that its signer
// does not sign gets the condition Failed with the reason.
//
// SPEC: AUTH-1
func TestSignedCertificate(t *testing.T) {
	s := newSigning(t)
	status := `{"conditions":[` + s.condition("Approved", 0) + `]}`
	r := s.request("jane", clientSigner, ofNode("n"), clientUsages, "", status)
	if err := r.sign(s.Context()); err != nil {
		t.Fatal(err)
	}
	stored, _ := s.status(r)
	text, err := base64.StdEncoding.DecodeString(stored.At("certificate").Str())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckSignatureFrom(s.Authority); err != nil {
		t.Error(err)
	}
	if c.Subject.CommonName != "system:node:n" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) ||
		c.KeyUsage != x509.KeyUsageDigitalSignature || c.IsCA ||
		!slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the certificate is for %v, usages %v and %v, authority %v", c.Subject, c.KeyUsage, c.ExtKeyUsage, c.IsCA)
	}
	r = s.request("jane", clientSigner, ofNode("n"), `"server auth"`, "", status)
	if err := r.sign(s.Context()); err != nil {
		t.Fatal(err)
	}
	stored, _ = s.status(r)
	last := stored.At("conditions").Items()[stored.At("conditions").Len()-1]
	if last.At("type").Str() != "Failed" || last.At("reason").Str() != "SignerValidationFailure" ||
		last.At("message").Str() != "invalid usage for client certificate: server auth" {
		t.Errorf("a request with a usage that clients have not has the condition %s", object.AppendJSON(nil, last))
	}
	// Validation refuses it, so no request that is stored has such a signature.
	r = s.request("jane", clientSigner, ofNode("n"), clientUsages, "", status)
	r.obj = r.obj.WithAt(object.StringOf(s.pkcs10(ofNode("n"), true)), "spec", "request")
	if err := r.sign(s.Context()); err == nil || !strings.Contains(err.Error(), "unable to verify certificate request") {
		t.Errorf("a request with the signature of another one: %v", err)
	}
}

// A certificate is valid for the requested time, within bounds, and never longer than its authority.
//
// SPEC: AUTH-1
func TestLifeOfCertificates(t *testing.T) {
	s := newSigning(t)
	for _, c := range []struct {
		seconds string
		left    time.Duration // of the authority; 0: more than enough
		want    time.Duration
	}{
		{"", 0, s.Life - backdate},
		{`,"expirationSeconds":600`, 0, 10 * time.Minute},
		{`,"expirationSeconds":28799`, 0, 28799 * time.Second},
		{`,"expirationSeconds":28800`, 0, 8*time.Hour - backdate},
		{`,"expirationSeconds":315360000`, 0, s.Life - backdate},
		{"", time.Minute, time.Minute},
		{`,"expirationSeconds":600`, 10 * time.Minute, 10 * time.Minute},
		{`,"expirationSeconds":600`, 599 * time.Second, 599 * time.Second},
	} {
		authority := *s.Authority
		if c.left > 0 {
			authority.NotAfter = s.now.Add(c.left)
		}
		r := s.request("jane", clientSigner, ofNode("n"), clientUsages, c.seconds, "")
		r.Certificates = &Certificates{Now: s.Now, Authority: &authority, PrivateKey: s.PrivateKey, Life: s.Life}
		if got := s.validity(r); got != c.want {
			t.Errorf("spec %s, with an authority that has %v left: valid for %v, want %v", c.seconds, c.left, got, c.want)
		}
	}
	// Validation refuses less than ten minutes; an object that was stored in another way gets ten all the same.
	r := s.request("jane", clientSigner, ofNode("n"), clientUsages, "", "")
	r.obj = r.obj.WithAt(object.IntOf(1), "spec", "expirationSeconds")
	if got := s.validity(r); got != minLife {
		t.Errorf("one second is asked for: valid for %v, want %v", got, minLife)
	}
	r.Certificates = &Certificates{Now: func() time.Time { return s.Authority.NotAfter }, Authority: s.Authority,
		PrivateKey: s.PrivateKey, Life: s.Life}
	parsed, err := r.parse()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.certificate(parsed); err == nil || !strings.Contains(err.Error(), "the signer has expired") {
		t.Errorf("an authority that has expired signs: %v", err)
	}
}

// validity makes the certificate of a request, and returns how long it is valid from now on.
func (s *signing) validity(r *signingRequest) time.Duration {
	s.Helper()
	request, err := r.parse()
	if err != nil {
		s.Fatal(err)
	}
	der, err := r.certificate(request)
	if err != nil {
		s.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		s.Fatal(err)
	}
	if !c.NotBefore.Equal(s.now.Add(-backdate)) {
		s.Errorf("valid from %v, want %v before %v", c.NotBefore, backdate, s.now)
	}
	return c.NotAfter.Sub(s.now)
}

// The requests that the signers refuse, with the messages of kube-controller-manager.
//
// SPEC: AUTH-1
func TestFitsSigner(t *testing.T) {
	node := func(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
		r := ofNode("n")
		if change != nil {
			change(r)
		}
		return r
	}
	names := func(r *x509.CertificateRequest) { r.DNSNames = []string{"a.example"} }
	addresses := func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }
	client := []string{"client auth", "digital signature"}
	serving := []string{"server auth", "digital signature", "key encipherment"}
	for _, c := range []struct {
		signer  string
		request *x509.CertificateRequest
		usages  []string
		want    string
	}{
		{clientSigner, node(nil), client, ""},
		{clientSigner, node(nil), append(client, "key encipherment"), ""},
		{clientSigner, node(nil), append(client, "server auth"), "invalid usage for client certificate: server auth"},
		{clientSigner, node(nil), client[1:], "missing required usage for client certificate: client auth"},
		{unknownSigner, node(nil), []string{"any"}, ""},
		{kubeletClientSigner, node(nil), client, ""},
		{kubeletClientSigner, node(nil), append(client, "key encipherment", "client auth"), ""},
		{kubeletClientSigner, node(nil), serving, "usages did not match [client auth digital signature key encipherment]"},
		{kubeletClientSigner, node(nil), client[:1], "usages did not match"},
		{kubeletClientSigner, node(names), client, "DNS subjectAltNames are not allowed"},
		{kubeletClientSigner, node(addresses), client, "IP subjectAltNames are not allowed"},
		{kubeletClientSigner, node(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }), client,
			"Email subjectAltNames are not allowed"},
		{kubeletClientSigner, node(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} }),
			client, "URI subjectAltNames are not allowed"},
		{kubeletClientSigner, node(func(r *x509.CertificateRequest) { r.Subject.CommonName = "jane" }), client,
			"subject common name does not begin with system:node:"},
		{kubeletClientSigner, node(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"a"} }), client,
			"subject organization is not system:nodes"},
		{kubeletClientSigner, node(func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, access.Masters)
		}), client, "subject organization is not system:nodes"},
		{kubeletSigner, node(names), serving, ""},
		{kubeletSigner, node(addresses), serving, ""},
		{kubeletSigner, node(nil), serving, "DNS or IP subjectAltName is required"},
		{kubeletSigner, node(names), client, "usages did not match [digital signature key encipherment server auth]"},
	} {
		got := ""
		if err := fitsSigner(c.signer, c.request, c.usages); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s of %v with the usages %q: %q, want %q", c.signer, c.request.Subject, c.usages, got, c.want)
		}
	}
}

// A Node's request for its own client certificate needs another permission for its approval than one for another Node.
//
// SPEC: AUTH-1
func TestApproval(t *testing.T) {
	s := newSigning(t)
	const self, other = "certificatesigningrequests.certificates.k8s.io/selfnodeclient",
		"certificatesigningrequests.certificates.k8s.io/nodeclient"
	for _, c := range []struct {
		user, signer string
		request      *x509.CertificateRequest
		allowed      []string
		status       string
		message      string // of the condition Approved; "": it is not approved
		asked        []string
	}{
		{"system:node:n", kubeletClientSigner, ofNode("n"), []string{"selfnodeclient"}, "",
			"Auto approving self kubelet client certificate after SubjectAccessReview.",
			[]string{"system:node:n create " + self}},
		{"system:node:m", kubeletClientSigner, ofNode("n"), []string{"selfnodeclient"}, "", "",
			[]string{"system:node:m create " + other}},
		{"bootstrap", kubeletClientSigner, ofNode("n"), []string{"nodeclient"}, "",
			"Auto approving kubelet client certificate after SubjectAccessReview.", []string{"bootstrap create " + other}},
		{"system:node:n", kubeletClientSigner, ofNode("n"), nil, "", "",
			[]string{"system:node:n create " + self, "system:node:n create " + other}},
		{"system:node:n", clientSigner, ofNode("n"), []string{"selfnodeclient", "nodeclient"}, "", "", nil},
		{"jane", kubeletClientSigner, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}},
			[]string{"selfnodeclient", "nodeclient"}, "", "", nil},
		{"system:node:n", kubeletClientSigner, ofNode("n"), []string{"selfnodeclient"},
			`{"conditions":[` + s.condition("Denied", 0) + `]}`, "", nil},
	} {
		s.allowed, s.asked = c.allowed, nil
		r := s.request(c.user, c.signer, c.request, clientUsages, "", c.status)
		if err := r.approve(s.Context()); err != nil {
			t.Errorf("%s for %v: %v", c.user, c.request.Subject, err)
		}
		status, _ := s.status(r)
		got := ""
		for _, condition := range status.At("conditions").Items() {
			got = condition.At("message").Str()
		}
		if got != c.message || !slices.Equal(s.asked, c.asked) {
			t.Errorf("%s for %v with %s: approved with %q after %q, want %q after %q", c.user, c.request.Subject, c.signer,
				got, s.asked, c.message, c.asked)
		}
	}
}

// When a request is deleted: an hour after the decision, a day if it is not decided or signed, and when its certificate
// has expired.
//
// SPEC: AUTH-1
func TestRequestsAreCleaned(t *testing.T) {
	s := newSigning(t)
	short := s.request("jane", clientSigner, ofNode("n"), clientUsages, `,"expirationSeconds":600`, "")
	parsedRequest, err := short.parse()
	if err != nil {
		t.Fatal(err)
	}
	der, err := short.certificate(parsedRequest)
	if err != nil {
		t.Fatal(err)
	}
	issued := fmt.Sprintf(`"certificate":%q,`, base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	const certificate = `"certificate":"YQ==",`
	for _, c := range []struct {
		status string
		left   time.Duration // 0: it is deleted
	}{
		{"", 24 * time.Hour},
		{`{"conditions":[` + s.condition("Denied", 59*time.Minute) + `]}`, time.Minute},
		{`{"conditions":[` + s.condition("Denied", time.Hour) + `]}`, 0},
		{`{"conditions":[` + s.condition("Failed", time.Hour) + `]}`, 0},
		{`{"conditions":[` + s.condition("Approved", time.Hour) + `]}`, 23 * time.Hour},
		{`{"conditions":[` + s.condition("Approved", 24*time.Hour) + `]}`, 0},
		{`{` + certificate + `"conditions":[` + s.condition("Approved", 59*time.Minute) + `]}`, time.Minute},
		{`{` + certificate + `"conditions":[` + s.condition("Approved", time.Hour) + `]}`, 0},
		{`{"conditions":[` + s.condition("Approved", time.Hour) + `,` + s.condition("Failed", 50*time.Minute) + `]}`,
			10 * time.Minute},
		{`{` + issued + `"conditions":[` + s.condition("Approved", 0) + `]}`, 10 * time.Minute},
	} {
		r := s.request("jane", clientSigner, ofNode("n"), clientUsages, "", c.status)
		left, err := r.clean(s.Context())
		if err != nil {
			t.Error(err)
		}
		_, there := s.status(r)
		// The creation time of a request is set by the engine's clock, which is the real one.
		if d := left - c.left; there != (c.left > 0) || d < 0 || d > time.Minute || c.status != "" && d != 0 {
			t.Errorf("%s: there %v, looked at again after %v, want %v", c.status, there, left, c.left)
		}
	}
}
