package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	client        = "kubernetes.io/kube-apiserver-client"
	kubeletClient = "kubernetes.io/kube-apiserver-client-kubelet"
	kubeletServes = "kubernetes.io/kubelet-serving"
	legacy        = "kubernetes.io/legacy-unknown"
	foreign       = "example.com/signer"
)

const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// want is a CertificateSigningRequest.
type want struct {
	name     string
	signer   string
	usages   string // separated by commas
	template x509.CertificateRequest
	seconds  int    // spec.expirationSeconds; 0: none
	by       string // a token; "": the administrator's
	decide   string // "": Approved by the administrator; "-": nothing; "Denied"
	key      string // "": ECDSA
}

const (
	asClient = "digital signature,key encipherment,client auth"
	asServer = "digital signature,key encipherment,server auth"
)

func subject(name string, organizations ...string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: organizations}}
}

// edit returns a changed copy of a template.
func edit(t x509.CertificateRequest, change func(*x509.CertificateRequest)) x509.CertificateRequest {
	change(&t)
	return t
}

func wants() []want {
	nodeName := subject("system:node:node-0", "system:nodes")
	dns := func(r *x509.CertificateRequest) { r.DNSNames = []string{"node-0.example.com", "node-0"} }
	ips := func(r *x509.CertificateRequest) {
		r.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1), net.ParseIP("2001:db8::1")}
	}
	mail := func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }
	uris := func(r *x509.CertificateRequest) {
		r.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/a"}}
	}
	all := []want{
		{name: "a user", signer: client, usages: asClient, template: subject("jane", "team", "other")},
		{name: "a user, RSA", signer: client, usages: asClient, template: subject("jane"), key: "RSA"},
		{name: "a user, Ed25519", signer: client, usages: asClient, template: subject("jane"), key: "Ed25519"},
		{name: "client auth alone", signer: client, usages: "client auth", template: subject("jane")},
		{name: "no client auth", signer: client, usages: "digital signature,key encipherment", template: subject("jane")},
		{name: "server auth", signer: client, usages: asServer, template: subject("jane")},
		{name: "both", signer: client, usages: asClient + ",server auth", template: subject("jane")},
		{name: "any", signer: client, usages: "any,client auth", template: subject("jane")},
		{name: "a usage twice", signer: client, usages: "client auth,client auth", template: subject("jane")},
		{name: "a master", signer: client, usages: asClient, template: subject("jane", "system:masters")},
		{name: "a user without a name", signer: client, usages: asClient, template: subject("", "team")},
		{name: "a user with all names", signer: client, usages: asClient,
			template: edit(edit(edit(edit(subject("jane"), dns), ips), mail), uris)},
		{name: "a long subject", signer: client, usages: asClient,
			template: x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Country: []string{"DE"},
				Locality: []string{"B"}, Province: []string{"B"}, OrganizationalUnit: []string{"u"}, SerialNumber: "7",
				StreetAddress: []string{"s"}, PostalCode: []string{"1"}}}},
		{name: "a subject with another attribute", signer: client, usages: asClient,
			template: x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane",
				ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2},
					Value: "uid-7"}}}}},
		{name: "an authority", signer: client, usages: asClient,
			template: edit(subject("jane"), func(r *x509.CertificateRequest) {
				r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true,
					Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}
			})},
		{name: "an extension", signer: client, usages: asClient,
			template: edit(subject("jane"), func(r *x509.CertificateRequest) {
				r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}}}
			})},
		{name: "denied", signer: client, usages: asClient, template: subject("jane"), decide: "Denied"},
		{name: "undecided", signer: client, usages: asClient, template: subject("jane"), decide: "-"},
		{name: "another signer", signer: foreign, usages: asClient, template: subject("jane")},

		{name: "a node, for itself", signer: kubeletClient, usages: asClient, template: nodeName,
			by: harness.NodeToken("node-0"), decide: "-"},
		{name: "a node, for itself, short", signer: kubeletClient, usages: "digital signature,client auth",
			template: nodeName, by: harness.NodeToken("node-0"), decide: "-"},
		{name: "another node", signer: kubeletClient, usages: asClient, template: nodeName, by: harness.NodeToken("node-1"),
			decide: "-"},
		{name: "somebody who may, for a node", signer: kubeletClient, usages: asClient, template: nodeName,
			by: harness.UserToken, decide: "-"},
		{name: "the administrator, for a node", signer: kubeletClient, usages: asClient, template: nodeName, decide: "-"},
		{name: "the scheduler, for a node", signer: kubeletClient, usages: asClient, template: nodeName,
			by: harness.SchedulerToken, decide: "-"},
		{name: "a node denied", signer: kubeletClient, usages: asClient, template: nodeName, by: harness.SchedulerToken,
			decide: "Denied"},
		{name: "a node that serves, for itself", signer: kubeletServes, usages: asServer,
			template: edit(edit(nodeName, dns), ips), by: harness.NodeToken("node-0"), decide: "-"},
		{name: "legacy of a node, for itself", signer: legacy, usages: asClient, template: nodeName,
			by: harness.NodeToken("node-0"), decide: "-"},
	}
	for _, signer := range []string{kubeletClient, kubeletServes, legacy} {
		usages, other := asClient, asServer
		if signer == kubeletServes {
			usages, other = asServer, asClient
		}
		for _, c := range []want{
			{name: "a node", template: nodeName},
			{name: "a node with names", template: edit(nodeName, dns)},
			{name: "a node with addresses", template: edit(nodeName, ips)},
			{name: "a node with both", template: edit(edit(nodeName, dns), ips)},
			{name: "a node with mail", template: edit(edit(nodeName, dns), mail)},
			{name: "a node with a URI", template: edit(edit(nodeName, dns), uris)},
			{name: "no prefix", template: edit(subject("node-0", "system:nodes"), dns)},
			{name: "a prefix alone", template: edit(subject("system:node:", "system:nodes"), dns)},
			{name: "no name", template: edit(subject("", "system:nodes"), dns)},
			{name: "another organization", template: edit(subject("system:node:node-0", "system:masters"), dns)},
			{name: "two organizations", template: edit(subject("system:node:node-0", "system:nodes", "system:masters"), dns)},
			{name: "no organization", template: edit(subject("system:node:node-0"), dns)},
			{name: "usages of the other", template: edit(nodeName, dns), usages: other},
			{name: "usages of both", template: edit(nodeName, dns), usages: usages + "," + other},
			{name: "usages short", template: edit(nodeName, dns), usages: strings.Replace(usages, "key encipherment,", "", 1)},
			{name: "usages twice", template: edit(nodeName, dns), usages: usages + ",digital signature"},
			{name: "one usage", template: edit(nodeName, dns), usages: usages[strings.LastIndex(usages, ",")+1:]},
			{name: "signing", template: edit(nodeName, dns), usages: usages + ",cert sign"},
		} {
			c.name, c.signer = signer+": "+c.name, signer
			if c.usages == "" {
				c.usages = usages
			}
			all = append(all, c)
			// And without DNS names, which a kubelet's client certificate must not have, unlike its server certificate.
			if c.template.DNSNames != nil && c.template.IPAddresses == nil && signer == kubeletClient {
				c.template.DNSNames = nil
				c.name += ", without names"
				all = append(all, c)
			}
		}
	}
	every := []string{"signing", "digital signature", "content commitment", "key encipherment", "key agreement",
		"data encipherment", "cert sign", "crl sign",
		"encipher only", "decipher only", "any", "server auth", "client auth", "code signing", "email protection", "s/mime",
		"ipsec end system",
		"ipsec tunnel", "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc"}
	for _, usage := range every {
		all = append(all, want{name: "usage " + usage, signer: legacy, usages: usage, template: subject("x")})
	}
	all = append(all, want{name: "all usages", signer: legacy, usages: strings.Join(every, ","), template: subject("x")})
	for _, seconds := range []int{600, 601, 3600, 8*3600 - 1, 8 * 3600, 8*3600 + 1, 86400, 364 * 86400, 365 * 86400,
		366 * 86400, 2147483647} {
		all = append(all, want{name: fmt.Sprint(seconds, " s"), signer: client, usages: asClient, template: subject("jane"),
			seconds: seconds})
	}
	return all
}

// server is one of the two servers.
type server struct {
	*harness.Server
	t *testing.T
}

func (s *server) do(method, path, token string, body any) (int, []byte) {
	s.t.Helper()
	return s.send(method, path, body, "Authorization", "Bearer "+token)
}

// send sends a request with headers: names and values.
func (s *server) send(method, path string, body any, headers ...string) (int, []byte) {
	s.t.Helper()
	text, ok := body.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(body); err != nil {
			s.t.Fatal(err)
		}
	}
	r, err := http.NewRequest(method, s.URL+path, bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, answer
}

// prepare grants permissions: every user may create requests, nodes get those for themselves approved automatically,
// and the user "somebody" those for nodes.
func (s *server) prepare() {
	s.t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	group := `"apiGroup":"rbac.authorization.k8s.io"`
	bind := func(name, role, kind, subject string) string {
		return fmt.Sprintf(
			`{"metadata":{"name":%q},"roleRef":{%s,"kind":"ClusterRole","name":%q},"subjects":[{%[2]s,"kind":%[4]q,"name":%[5]q}]}`, name, group, role, kind, subject)
	}
	const own = "system:certificates.k8s.io:certificatesigningrequests:"
	for _, o := range [][2]string{
		{"clusterroles",
			`{"metadata":{"name":"ask"},"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests"],"verbs":["create"]}]}`},
		{"clusterrolebindings", bind("ask", "ask", "Group", "system:authenticated")},
		{"clusterrolebindings", bind("self", own+"selfnodeclient", "Group", "system:nodes")},
		{"clusterrolebindings", bind("other", own+"nodeclient", "User", "somebody")},
	} {
		if code, answer := s.do("POST", rbac+o[0], harness.AdminToken, []byte(o[1])); code != 201 {
			s.t.Fatalf("%s: %d %s", o[1], code, answer)
		}
	}
}

// request is the part of a CertificateSigningRequest that is compared.
type request struct {
	Metadata struct{ Name, CreationTimestamp string }
	Spec     struct {
		Request []byte
	}
	Status struct {
		Certificate []byte
		Conditions  []struct{ Type, Status, Reason, Message string }
	}
}

// describe formats the result of a request.
func (r *request) describe() string {
	var out strings.Builder
	for _, c := range r.Status.Conditions {
		fmt.Fprintf(&out, "%s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	block, rest := pem.Decode(r.Status.Certificate)
	if block == nil {
		return out.String() + "no certificate\n"
	}
	if len(rest) > 0 {
		fmt.Fprintf(&out, "%d bytes behind the certificate\n", len(rest))
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return out.String() + err.Error()
	}
	created, err := time.Parse(time.RFC3339, r.Metadata.CreationTimestamp)
	if err != nil {
		return out.String() + err.Error()
	}
	asked, _ := pem.Decode(r.Spec.Request)
	csr, err := x509.ParseCertificateRequest(asked.Bytes)
	if err != nil {
		return out.String() + err.Error()
	}
	fmt.Fprintf(&out, "version %d, %s, serial number of %v bits\n", c.Version, c.SignatureAlgorithm,
		c.SerialNumber.BitLen() > 64 && c.SerialNumber.BitLen() <= 128)
	fmt.Fprintf(&out, "subject %s, %x, as asked for: %v\n", c.Subject, c.RawSubject,
		bytes.Equal(c.RawSubject, csr.RawSubject))
	fmt.Fprintf(&out, "names %q %v %q %v\n", c.DNSNames, c.IPAddresses, c.EmailAddresses, c.URIs)
	fmt.Fprintf(&out, "usages %b %v %v\n", c.KeyUsage, c.ExtKeyUsage, c.UnknownExtKeyUsage)
	fmt.Fprintf(&out, "valid from %s to %s\n", c.NotBefore.Sub(created).Round(time.Minute),
		c.NotAfter.Sub(created).Round(time.Minute))
	fmt.Fprintf(&out, "authority %v %v %d, the key that was sent: %v\n", c.BasicConstraintsValid, c.IsCA, c.MaxPathLen,
		sameKey(c.PublicKey, csr.PublicKey))
	for _, e := range c.Extensions {
		value := fmt.Sprintf("%x", e.Value)
		if e.Id.String() == "2.5.29.35" { // who has signed it
			value = "the authority's"
		}
		fmt.Fprintf(&out, "extension %s %v %s\n", e.Id, e.Critical, value)
	}
	return out.String()
}

func sameKey(a, b any) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// states returns the results of all requests, by name.
func (s *server) states() map[string]string {
	s.t.Helper()
	code, answer := s.do("GET", path, harness.AdminToken, []byte(nil))
	var list struct{ Items []request }
	if err := json.Unmarshal(answer, &list); err != nil || code != 200 {
		s.t.Fatalf("%d %v %s", code, err, answer)
	}
	found := map[string]string{}
	for _, r := range list.Items {
		found[r.Metadata.Name] = r.describe()
	}
	return found
}

func newKey(t *testing.T, kind string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "RSA":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "Ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// start starts both, each with its controllers.
func start(t *testing.T) []*server {
	t.Helper()
	ours := harness.Run(t, harness.Options{Kind: harness.Plinth})
	theirs := harness.Run(t, harness.Options{Kind: harness.Reference})
	signer, err := authority.New("signer", 20*365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signer.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"signer.crt": signer.PEM(), "signer.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	controlplane.Run(t, theirs, controlplane.Options{NoScheduler: true, Manager: []string{"--leader-elect=false",
		"--controllers=certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller,certificatesigningrequest-cleaner-controller",
		"--cluster-signing-cert-file=" + filepath.Join(dir, "signer.crt"),
		"--cluster-signing-key-file=" + filepath.Join(dir, "signer.key")}})
	return []*server{{theirs, t}, {ours, t}}
}

// changing are members that differ from server to server.
var changing = regexp.MustCompile(`"(uid|resourceVersion|creationTimestamp|time)":"[^"]*",?`)

// sorted returns a JSON text with its members in order, each on a separate line.
func sorted(t *testing.T, text []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(",}"), []byte("}")), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Requests lead to the same certificates on Plinth and on the reference.
//
// SPEC: AUTH-1
func TestCertificates(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	servers := start(t)
	for _, s := range servers {
		s.prepare()
	}
	cases := wants()
	for i, c := range cases {
		der, err := x509.CreateCertificateRequest(rand.Reader, &c.template, newKey(t, c.key))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		name := fmt.Sprintf("r%d", i)
		spec := map[string]any{"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			"signerName": c.signer, "usages": strings.Split(c.usages, ",")}
		if c.seconds > 0 {
			spec["expirationSeconds"] = c.seconds
		}
		token := c.by
		if token == "" {
			token = harness.AdminToken
		}
		var answers []string
		for _, s := range servers {
			code, answer := s.do("POST", path, token, map[string]any{"metadata": map[string]any{"name": name}, "spec": spec})
			answers = append(answers, fmt.Sprintf("%d %s", code, sorted(t, changing.ReplaceAll(answer, nil))))
			if code != 201 || c.decide == "-" {
				continue
			}
			var obj map[string]any
			if err := json.Unmarshal(answer, &obj); err != nil {
				t.Fatal(err)
			}
			decision := c.decide
			if decision == "" {
				decision = "Approved"
			}
			obj["status"] = map[string]any{"conditions": []any{map[string]any{"type": decision, "status": "True",
				"reason": "Test", "message": "by the test"}}}
			delete(obj["metadata"].(map[string]any), "resourceVersion")
			if code, answer := s.do("PUT", path+"/"+name+"/approval", harness.AdminToken, obj); code != 200 {
				t.Errorf("%s: %s: %d %s", s.Kind, c.name, code, answer)
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%s is answered otherwise\n--- reference\n+++ here\n%s", c.name, linediff.Diff(answers[0], answers[1]))
		}
	}
	// The controllers have finished when the requests have not changed for a while.
	var last []map[string]string
	for quiet, end := time.Now(), time.Now().Add(time.Minute); time.Since(quiet) < 4*time.Second &&
		time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		var now []map[string]string
		for _, s := range servers {
			now = append(now, s.states())
		}
		if fmt.Sprint(now) != fmt.Sprint(last) {
			last, quiet = now, time.Now()
		}
	}
	signed, failed, approved := 0, 0, 0
	for i, c := range cases {
		name := fmt.Sprintf("r%d", i)
		theirs, here := last[0][name], last[1][name]
		if theirs != here {
			t.Errorf("%s\n--- reference\n+++ here\n%s", c.name, linediff.Diff(theirs, here))
		}
		if strings.Contains(theirs, "subject") {
			signed++
		}
		if strings.Contains(theirs, "Failed True") {
			failed++
		}
		if strings.Contains(theirs, "AutoApproved") {
			approved++
		}
	}
	t.Logf("%d requests: %d are signed, %d have failed, %d are approved by a controller", len(cases), signed,
		failed, approved)
	if len(cases) < 110 || signed < 50 || failed < 25 || approved < 3 {
		t.Error("that is too little to have compared anything")
	}
}

// Users who may write to the subresources of requests may approve and sign only for signers for which they have the
// verb.
//
// SPEC: AUTH-2
func TestSigners(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	servers := []*server{{harness.Run(t, harness.Options{Kind: harness.Reference}), t},
		// Without the signing controller, approved requests are not signed meanwhile.
		{harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: []string{"--controllers=-namespace-controller"}}), t}}
	rule := func(verb string, names ...string) string {
		list, err := json.Marshal(names)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`,{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"verbs":[%q],"resourceNames":%s}`,
			verb, list)
	}
	roles := []string{
		"", rule("approve", client), rule("approve", "kubernetes.io/*"), rule("approve", "*"), rule("approve", foreign),
		rule("approve", "example.com/*"), rule("approve"),
		rule("sign", client), rule("sign", "kubernetes.io/*"), rule("sign", foreign), rule("sign"), rule("*", client),
		rule("approve", "kubernetes.io"),
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for i, role := range roles {
		for _, o := range [][2]string{
			{"clusterroles", fmt.Sprintf(`{"metadata":{"name":"u%d"},"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests",
"certificatesigningrequests/approval","certificatesigningrequests/status"],"verbs":["get","update","patch"]}%s]}`, i, role)},
			{"clusterrolebindings", fmt.Sprintf(`{"metadata":{"name":"u%d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"u%[1]d"},
"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u%[1]d"}]}`, i)},
		} {
			for _, s := range servers {
				if code, answer := s.do("POST", rbac+o[0], harness.AdminToken, []byte(o[1])); code != 201 {
					t.Fatalf("%s: %d %s", o[1], code, answer)
				}
			}
		}
	}
	time.Sleep(2 * time.Second) // the reference's authorizer follows roles by informers
	template := subject("jane")
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, newKey(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	own, err := authority.New("signer", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind string) string {
		return `"conditions":[{"type":"` + kind + `","status":"True","reason":"r","message":"m"}]`
	}
	certificate, err := json.Marshal(own.PEM())
	if err != nil {
		t.Fatal(err)
	}
	writes := []struct{ name, subresource, contentType, body string }{
		{"approves", "/approval", "application/merge-patch+json", `{"status":{` + condition("Approved") + `}}`},
		{"denies", "/approval", "application/merge-patch+json", `{"status":{` + condition("Denied") + `}}`},
		{"approves by apply", "/approval", "application/apply-patch+yaml",
			`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","status":{` +
				condition("Approved") + `}}`},
		{"writes nothing to approval", "/approval", "application/merge-patch+json", `{}`},
		{"approves a dry one", "/approval?dryRun=All", "application/merge-patch+json",
			`{"status":{` + condition("Approved") + `}}`},
		{"changes the signer in approval", "/approval", "application/merge-patch+json",
			`{"spec":{"signerName":"` + foreign + `"},"status":{` + condition("Approved") + `}}`},
		{"signs", "/status", "application/merge-patch+json", `{"status":{"certificate":` + string(certificate) + `}}`},
		{"has it fail", "/status", "application/merge-patch+json", `{"status":{` + condition("Failed") + `}}`},
		{"approves by status", "/status", "application/merge-patch+json", `{"status":{` + condition("Approved") + `}}`},
		{"writes nothing to status", "/status", "application/merge-patch+json", `{}`},
		{"writes labels by status", "/status", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`},
		{"writes labels", "", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`},
		{"is wrong about conditions", "/approval", "application/merge-patch+json", `{"status":{` + condition("") + `}}`},
	}
	compared, refused := 0, 0
	for i, role := range roles {
		for j, w := range writes {
			for k, signer := range []string{client, foreign} {
				name := fmt.Sprintf("r%d-%d-%d", i, j, k)
				var answers []string
				for _, s := range servers {
					code, answer := s.do("POST", path, harness.AdminToken, map[string]any{"metadata": map[string]any{"name": name},
						"spec": map[string]any{"request": text, "signerName": signer, "usages": strings.Split(asClient, ",")}})
					if code != 201 {
						t.Fatalf("%d %s", code, answer)
					}
					target := path + "/" + name + w.subresource
					if strings.Contains(w.contentType, "apply") {
						target += "?fieldManager=test"
					}
					code, answer = s.send("PATCH", target, []byte(w.body), "Authorization", "Bearer "+harness.AdminToken,
						"Impersonate-User", fmt.Sprint("u", i), "Content-Type", w.contentType)
					answers = append(answers, fmt.Sprintf("%d %s", code,
						sorted(t, dated.ReplaceAll(changing.ReplaceAll(answer, nil), []byte(`"<time>"`)))))
					if code == 403 {
						refused++
					}
				}
				compared++
				if answers[0] != answers[1] {
					t.Errorf("who has %q %s a request for %s\n--- reference\n+++ here\n%s", role, w.name, signer,
						linediff.Diff(answers[0], answers[1]))
				}
			}
		}
	}
	t.Logf("%d writes, %d answers refuse", compared, refused)
	if compared < 300 || refused < 200 {
		t.Error("that is too little to have compared anything")
	}
}

var dated = regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)
