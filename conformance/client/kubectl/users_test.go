package kubectl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/internal/auth/oidc/issuertest"
)

// users are the commands of an administrator who gives access to users and programs, and the commands of these (with
// their own context). shows has parts of the output; the whole output is compared with that for the reference with the
// real kube-controller-manager.
var users = []struct {
	command string
	shows   []string
}{
	{`kubectl create namespace team; kubectl create namespace other`, []string{"namespace/team created"}},
	{`until kubectl get clusterrole admin view -o jsonpath='{range .items[*]}{.rules[0].verbs[0]} {end}' | grep -q '[a-z] [a-z]'; do sleep 0.2; done; echo aggregated`, nil},

	// A user who has made a key and requests a certificate.
	{`kubectl apply -f jane.yaml`,
		[]string{"certificatesigningrequest.certificates.k8s.io/jane created"}},
	{`kubectl certificate approve jane`, []string{"certificatesigningrequest.certificates.k8s.io/jane approved"}},
	{`kubectl wait csr/jane --for=jsonpath='{.status.certificate}' --timeout=30s && kubectl get csr jane -o jsonpath='{.status.certificate}' | base64 -d > jane.crt &&
kubectl config set-credentials jane --embed-certs --client-key=jane.key --client-certificate=jane.crt &&
kubectl config set-context jane --user=jane --cluster="$(kubectl config view -o jsonpath='{.clusters[0].name}')"`, []string{`Context "jane" created.`}},
	{`kubectl --context=jane auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}'`,
		[]string{`jane ["devs","system:authenticated"]`}},
	{`kubectl --context=jane auth can-i create deployments -n team; kubectl --context=jane get pods -n team`,
		[]string{"no\n",
			`pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "team"`}},

	// Her team may do everything in its namespace, and nothing elsewhere.
	{`kubectl create rolebinding devs --clusterrole=cluster-admin --group=devs -n team`,
		[]string{"rolebinding.rbac.authorization.k8s.io/devs created"}},
	{`for verb in get create '*'; do kubectl --context=jane auth can-i "$verb" '*' -n team; kubectl --context=jane auth can-i "$verb" '*' -n other; kubectl --context=jane auth can-i "$verb" '*' -A; done`,
		[]string{"yes\nno\nno\nyes\nno\nno\nyes\nno\nno"}},
	{`kubectl --context=jane auth can-i --list -n team | sort`, []string{"*.*  []  []  [*]"}},
	{`kubectl --context=jane auth can-i --list -n other | sort; kubectl auth can-i --list -n other --as=nobody | sort`,
		[]string{"selfsubjectreviews.authentication.k8s.io"}},
	{`kubectl --context=jane -n team create deployment web --image=i --replicas=0; kubectl --context=jane -n team create configmap a --from-literal=k=v; kubectl --context=jane -n team get secrets; kubectl --context=jane -n team create role pods --verb=get --resource=pods; kubectl --context=jane -n team create rolebinding pods --role=pods --user=bob; kubectl --context=jane -n team delete configmap a`,
		[]string{"deployment.apps/web created", "configmap/a created", "No resources found in team namespace.",
			"role.rbac.authorization.k8s.io/pods created", "rolebinding.rbac.authorization.k8s.io/pods created",
			`configmap "a" deleted`}},
	{`kubectl --context=jane -n other create configmap a; kubectl --context=jane get pods -A; kubectl --context=jane get nodes; kubectl --context=jane get secret x -n other; kubectl --context=jane create namespace mine; kubectl --context=jane -n other create rolebinding me --clusterrole=view --user=jane; kubectl --context=jane create clusterrolebinding me --clusterrole=cluster-admin --user=jane; kubectl --context=jane create token default -n other; kubectl --context=jane certificate approve jane; kubectl --context=jane get --raw /metrics`,
		[]string{`configmaps is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the namespace "other"`, `cannot list resource "nodes"`, `clusterrolebindings.rbac.authorization.k8s.io is forbidden`}},
	{`kubectl --context=jane -n team get pods --as=root; kubectl --context=jane -n team get pods --as=jane --as-group=system:masters`, []string{`cannot impersonate`}},

	// A user who may impersonate others makes requests as them.
	{`kubectl auth can-i get pods -n team --as=bob; kubectl auth can-i get secrets -n team --as=bob; kubectl auth can-i get secrets -n team --as=ann --as-group=devs; kubectl get secrets -n team --as=bob`,
		[]string{"yes\nno\nyes\n", `User "bob" cannot list resource "secrets"`}},
	{`kubectl auth whoami --as=ann --as-group=devs --as-group=ops --as-uid=7 -o jsonpath='{.status.userInfo}'`,
		[]string{`"groups":["devs","ops","system:authenticated"]`, `"uid":"7"`, `"username":"ann"`}},

	// Roles from a file.
	{`kubectl auth reconcile -f roles.yaml --dry-run=client && kubectl auth reconcile -f roles.yaml && kubectl auth reconcile -f roles.yaml`,
		[]string{"clusterrole.rbac.authorization.k8s.io/reader reconciled",
			"rolebinding.rbac.authorization.k8s.io/reader reconciled"}},
	{`sed -i 's/"list", //; s/name: bob/name: eve/' roles.yaml; kubectl auth reconcile -f roles.yaml; kubectl get clusterrole reader -o jsonpath='{.rules}'; kubectl get rolebinding reader -n team -o jsonpath='{.subjects}'`, []string{`"list"`, `"bob"`, `"eve"`}},
	{`kubectl auth reconcile -f roles.yaml --remove-extra-permissions --remove-extra-subjects; kubectl get clusterrole reader -o jsonpath='{.rules}'; kubectl get rolebinding reader -n team -o jsonpath='{.subjects}'`, []string{`[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`}},
	{`kubectl --context=jane auth reconcile -f roles.yaml`, nil},

	// A controller, with its service account.
	{`kubectl create serviceaccount robot -n team && kubectl create role robot -n team --verb=get,list,watch,patch --resource=deployments.apps,deployments.apps/scale && kubectl create rolebinding robot -n team --role=robot --serviceaccount=team:robot`,
		[]string{"serviceaccount/robot created", "rolebinding.rbac.authorization.k8s.io/robot created"}},
	{`kubectl config set-credentials robot --token="$(kubectl create token robot -n team --duration=1h)" && kubectl config set-context robot --user=robot --namespace=team --cluster="$(kubectl config view -o jsonpath='{.clusters[0].name}')"`, []string{`User "robot" set.`}},
	{`kubectl --context=robot auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}'`,
		[]string{`system:serviceaccount:team:robot ["system:serviceaccounts","system:serviceaccounts:team","system:authenticated"]`}},
	{`kubectl --context=robot scale deployment web --replicas=1; kubectl --context=robot get deployment web -o jsonpath='{.spec.replicas}'; kubectl --context=robot delete deployment web; kubectl --context=robot get secrets; kubectl --context=robot get deployments -n other`,
		[]string{"deployment.apps/web scaled", `cannot delete resource "deployments"`,
			`User "system:serviceaccount:team:robot" cannot list resource "secrets"`}},
	{`kubectl delete serviceaccount robot -n team; until kubectl --context=robot get deployments 2>&1 | grep Unauthorized; do sleep 0.5; done`, []string{"You must be logged in to the server (Unauthorized)"}},

	// A reader with a token of an OpenID Connect issuer.
	{`kubectl create clusterrolebinding readers --clusterrole=view --group=oidc:readers && kubectl config set-credentials ann --token="$(cat ann.token)" && kubectl config set-context ann --user=ann --cluster="$(kubectl config view -o jsonpath='{.clusters[0].name}')"`, []string{`Context "ann" created.`}},
	{`until kubectl --context=ann auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}' 2>/dev/null; do sleep 0.5; done`, []string{`oidc:ann ["oidc:readers","system:authenticated"]`}},
	{`kubectl --context=ann get deployments -A -o name; kubectl --context=ann get secrets -A; kubectl --context=ann -n team delete deployment web; kubectl --context=ann auth can-i list pods -A; kubectl --context=ann auth can-i delete pods`,
		[]string{"deployment.apps/web\n", `User "oidc:ann" cannot list resource "secrets"`,
			`cannot delete resource "deployments"`, "yes\nno"}},
	{`kubectl config set-credentials ann --token="$(cat expired.token)" >/dev/null; kubectl --context=ann get pods`,
		[]string{"Unauthorized"}},
}

// leastPrinted is the minimum number of characters that the session prints.
const leastPrinted = 6000

// An administrator gives access to users, programs and a team, which can use exactly their permissions; the output is
// the same as with the reference.
//
// SPEC: AUTH-1, AUTH-2
func TestUsers(t *testing.T) {
	issuer := issuertest.Start(t)
	flags := []string{"--oidc-issuer-url=" + issuer.URL, "--oidc-ca-file=" + issuer.CAFile(), "--oidc-client-id=kubectl",
		"--oidc-username-claim=name", "--oidc-username-prefix=oidc:", "--oidc-groups-claim=groups",
		"--oidc-groups-prefix=oidc:"}
	ours := session(t, harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: append(flags,
		"--controllers=*")}), issuer)
	printed := 0
	for i, step := range users {
		printed += len(ours[i])
		for _, part := range step.shows {
			if !strings.Contains(ours[i]+"\n", part) {
				t.Errorf("$ %s\ndoes not show %q:\n%s", step.command, part, ours[i])
			}
		}
	}
	if printed < leastPrinted {
		t.Errorf("only %d characters were printed", printed)
	}
	if !harness.WantReference() {
		return
	}
	dir := t.TempDir()
	authority := signer(t, dir)
	server := harness.Run(t, harness.Options{Kind: harness.Reference, Flags: append(flags,
		"--client-ca-file="+authority+".crt")})
	controlplane.Run(t, server, controlplane.Options{NoScheduler: true, Manager: []string{
		"--cluster-signing-cert-file=" + authority + ".crt", "--cluster-signing-key-file=" + authority + ".key",
		"--controllers=certificatesigningrequest-signing-controller,clusterrole-aggregation-controller,serviceaccount-controller",
	}})
	for i, want := range session(t, server, issuer) {
		if want != ours[i] {
			t.Errorf("$ %s\n--- reference\n+++ here\n%s", users[i].command, linediff.Diff(want, ours[i]))
		}
	}
}

// session runs all commands with a server.
func session(t *testing.T, server *harness.Server, issuer *issuertest.Issuer) (printed []string) {
	t.Helper()
	home := t.TempDir()
	r, err := newRunner(server, home)
	if err != nil {
		t.Fatal(err)
	}
	key, request := certificateRequest(t)
	for name, text := range map[string]string{
		"jane.key": key,
		"jane.yaml": fmt.Sprintf(
			"apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: jane}\n"+
				"spec:\n  signerName: kubernetes.io/kube-apiserver-client\n  usages: [client auth]\n  request: %s\n",
			base64.StdEncoding.EncodeToString([]byte(request))),
		"roles.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: ["configmaps"], verbs: ["list", "get"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`,
		"ann.token": issuer.Token(issuertest.Claims{"aud": "kubectl", "sub": "1", "name": "ann",
			"groups": []string{"readers"}}),
		"expired.token": issuer.Token(issuertest.Claims{"aud": "kubectl", "sub": "1", "name": "ann",
			"iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(-time.Hour).Unix()}),
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range users {
		printed = append(printed, r.run("{ "+step.command+"\n} 2>&1", ""))
	}
	return printed
}

func certificateRequest(t *testing.T) (key, request string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane", Organization: []string{"devs"}},
	}, private)
	if err != nil {
		t.Fatal(err)
	}
	return keyPEM(t, private), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// signer makes an authority that signs certificates of clients, FILE.crt and FILE.key.
func signer(t *testing.T, dir string) (file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "signer")
	for name, text := range map[string]string{
		file + ".key": keyPEM(t, key), file + ".crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: der})),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}
