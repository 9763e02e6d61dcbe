package admission

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// signing is a CertificateSigningRequest; the rest are members of its spec and its status.
func signing(signer, spec, status string) string {
	return fmt.Sprintf(`{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r},
		spec: {signerName: %q, usages: [digital signature], request: "eA=="%s}, status: {%s}}`, signer, spec, status)
}

func ofSigning(operation admission.Operation, subresource, object, old string) attempt {
	return attempt{operation: operation, group: "certificates.k8s.io", version: "v1",
		resource: "certificatesigningrequests", subresource: subresource, name: "r", object: object, old: old,
		user: user.DefaultInfo{Name: "jane"}}
}

// signers allows a verb for one name of a signer.
func signers(allowed, signer string) func(verb, group, resource, subresource, namespace, name string) bool {
	return func(verb, group, resource, subresource, namespace, name string) bool {
		return verb == allowed && group == "certificates.k8s.io" && resource == "signers" && subresource == "" &&
			namespace == "" && name == signer
	}
}

// signerWorlds are worlds with rights for no signer, for one, for those of a domain, and with another verb.
func signerWorlds(t *testing.T, plugin, verb, other string) (all []*world) {
	for _, name := range []string{"", "a.org/one", "a.org/*", "*", "b.org/*"} {
		for _, failure := range []error{nil, errors.New("the authorizer is down")} {
			all = append(all, (&world{plugin: plugin, allow: signers(verb, name), failure: failure}).build(t))
		}
	}
	return append(all, (&world{plugin: plugin, allow: signers(other, "a.org/*")}).build(t))
}

// SPEC: AUTH-3
func TestCertificateApproval(t *testing.T) {
	var count tally
	approved := `conditions: [{type: Approved, status: "True"}]`
	for _, w := range signerWorlds(t, "CertificateApproval", "approve", "sign") {
		for _, subresource := range []string{"", "status", "approval"} {
			for _, before := range []string{"a.org/one", "a.org/two", "b.org/one", "none", ""} {
				for _, after := range []string{"a.org/one", "b.org/one"} {
					object, old := signing(after, "", approved), signing(before, "", "")
					w.compare(t, ofSigning(admission.Update, subresource, object, old), &count)
					w.compare(t, ofSigning(admission.Update, subresource, old, old), &count)
				}
			}
			w.compare(t, ofSigning(admission.Create, subresource, signing("b.org/one", "", ""), ""), &count)
			w.compare(t, ofSigning(admission.Delete, subresource, "", signing("b.org/one", "", "")), &count)
		}
		// Another resource with a subresource of that name would not be meant.
		pod := `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {containers: [{name: c, image: i}]}}`
		w.compare(t, attempt{operation: admission.Update, version: "v1", resource: "pods", subresource: "status",
			namespace: "ns", name: "p", object: pod, old: pod}, &count)
	}
	count.atLeast(t, 0, 300, 40)
}

// SPEC: AUTH-3
func TestCertificateSigning(t *testing.T) {
	var count tally
	statuses := []string{
		"", "conditions: []", `certificate: "eA=="`, `certificate: "eQ=="`, `certificate: "eA=\n="`,
		`conditions: [{type: Approved, status: "True"}]`, `conditions: [{type: Failed, status: "True"}]`,
		`conditions: [{type: Approved, status: "True"}, {type: Failed, status: "True"}]`,
		`conditions: [{type: Failed, status: "True"}, {type: Approved, status: "True"}]`,
		`conditions: [{type: Approved, status: "True", lastUpdateTime: "2024-01-01T00:00:00Z"}]`,
		`conditions: [{type: Approved, status: "True", lastUpdateTime: "2024-01-01T01:00:00+01:00"}]`,
		`conditions: [{type: Approved, status: "True", lastUpdateTime: null}]`,
		`conditions: [{type: Approved, status: "True", message: ""}]`,
		`certificate: "eA==", conditions: [{type: Approved, status: "True"}]`,
	}
	for _, w := range signerWorlds(t, "CertificateSigning", "sign", "approve") {
		for _, subresource := range []string{"", "status", "approval"} {
			for _, before := range statuses {
				for _, after := range statuses {
					object, old := signing("b.org/one", "", after), signing("a.org/one", "", before)
					w.compare(t, ofSigning(admission.Update, subresource, object, old), &count)
				}
			}
			full := signing("b.org/one", "", statuses[2])
			w.compare(t, ofSigning(admission.Update, subresource, full, signing("a.org/two", "", "")), &count)
			w.compare(t, ofSigning(admission.Update, subresource, full, signing("", "", "")), &count)
			w.compare(t, ofSigning(admission.Create, subresource, full, ""), &count)
			w.compare(t, ofSigning(admission.Delete, subresource, "", full), &count)
		}
	}
	count.atLeast(t, 0, 3000, 500)
}

// An empty certificate is no certificate. The reference takes one that is sent for a change of one that is absent, and
// demands the right to sign; but nothing is signed by it, and validating admission sees an object in its stored form
// here, in which both are absent.
//
// SPEC: AUTH-3
func TestEmptyCertificate(t *testing.T) {
	w := (&world{plugin: "CertificateSigning", allow: signers("sign", "")}).build(t)
	a := ofSigning(admission.Update, "status", signing("a.org/one", "", `certificate: ""`), signing("a.org/one", "", ""))
	if theirs, mine := w.runReference(t, a), w.runOurs(t, a); theirs.refusal == nil || mine.refusal != nil {
		t.Errorf("the difference is not there any more:\n--- reference\n%s--- ours\n%s", theirs, mine)
	}
	// One that is taken away is a change in both.
	var count tally
	w.compare(t, ofSigning(admission.Update, "status", signing("a.org/one", "", `certificate: ""`),
		signing("a.org/one", "", `certificate: "eA=="`)), &count)
	count.atLeast(t, 0, 0, 1)
}

// requested is the PEM of a request for a certificate of jane with these organizations.
func requested(t *testing.T, block string, organizations ...string) string {
	return string(requestedFor(t, block, pkix.Name{CommonName: "jane", Organization: organizations}))
}

// requestedFor is the PEM of a request for a certificate of a subject.
func requestedFor(t *testing.T, block string, subject pkix.Name) []byte {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: request})
}

// SPEC: AUTH-3
func TestCertificateSubjectRestriction(t *testing.T) {
	w := (&world{plugin: "CertificateSubjectRestriction"}).build(t)
	const block = "CERTIFICATE REQUEST"
	masters := requested(t, block, "system:masters")
	texts := []string{
		requested(t, block), requested(t, block, "developers"), masters,
		requested(t, block, "developers", "system:masters"), requested(t, block, "System:Masters"),
		requested(t, block, "system:masters:x"), requested(t, "CERTIFICATE", "developers"),
		requested(t, "NEW "+block, "system:masters"), requested(t, block) + masters, masters + requested(t, block),
		"text before\n" + masters, "", "no PEM", string(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: []byte("x")})),
		string(pem.EncodeToMemory(&pem.Block{Type: block})),
	}
	var count tally
	for _, text := range texts {
		for _, signer := range []string{"kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet",
			"a.org/one"} {
			object := fmt.Sprintf(`{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r},
				spec: {signerName: %s, usages: [digital signature], request: %q}}`, signer,
				base64.StdEncoding.EncodeToString([]byte(text)))
			for _, subresource := range []string{"", "status", "approval"} {
				w.compare(t, ofSigning(admission.Create, subresource, object, ""), &count)
				w.compare(t, ofSigning(admission.Update, subresource, object, object), &count)
				w.compare(t, ofSigning(admission.Delete, subresource, "", object), &count)
			}
		}
	}
	count.atLeast(t, 0, 300, 8)
}
