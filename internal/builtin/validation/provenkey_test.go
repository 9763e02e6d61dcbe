package validation_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/object"
)

// In v1beta1 a PodCertificateRequest may have a key and a signature of the Pod's UID in place of a PKCS #10 request.
//
// SPEC: VAL-4
func TestProvenKeys(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(documents["PodCertificateRequest/issued"])
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	pod := parsed.Value.Without("status")
	uid := pod.At("spec", "podUID").Str()
	rules := validation.PodCertificateRequest.Rules(validation.Options{})
	ed, edKey, _ := ed25519.GenerateKey(rand.Reader)
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	small, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(uid))
	sign := func(key crypto.Signer, text []byte, o crypto.SignerOpts) []byte {
		proof, err := key.Sign(rand.Reader, text, o)
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	pss := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	for name, c := range map[string]struct {
		public any
		proof  []byte
		want   []string
	}{
		"Ed25519":          {ed, ed25519.Sign(edKey, []byte(uid)), nil},
		"ECDSA":            {&ec.PublicKey, sign(ec, digest[:], crypto.SHA256), nil},
		"RSA":              {&rsaKey.PublicKey, sign(rsaKey, digest[:], pss), nil},
		"another's key":    {ed, ed25519.Sign(edKey, []byte("x")), []string{"FieldValueInvalid spec.proofOfPossession"}},
		"P-224":            {&small.PublicKey, []byte("x"), []string{"FieldValueInvalid spec.pkixPublicKey"}},
		"no proof":         {ed, nil, []string{"FieldValueInvalid spec"}},
		"an endless proof": {ed, make([]byte, 11<<10), []string{"FieldValueTooLong spec.proofOfPossession"}},
	} {
		public, err := x509.MarshalPKIXPublicKey(c.public)
		if err != nil {
			t.Fatal(err)
		}
		text := func(b []byte) object.Value { return object.StringOf(base64.StdEncoding.EncodeToString(b)) }
		obj := pod.WithoutAt("spec", "stubPKCS10Request").WithAt(text(public), "spec", "pkixPublicKey").
			WithAt(text(c.proof), "spec", "proofOfPossession")
		if got := validationtest.Errors(rules.Create(obj), false); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		both := obj.WithAt(pod.At("spec", "stubPKCS10Request"), "spec", "stubPKCS10Request")
		if got := validationtest.Errors(rules.Create(both), false); !slices.Equal(got, []string{"FieldValueInvalid spec"}) {
			t.Errorf("%s, and a PKCS #10 request: %q", name, got)
		}
	}
}
