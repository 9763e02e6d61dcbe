package server

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"plinth/internal/pki"
	"plinth/object"
)

const bundlesPath = "/apis/certificates.k8s.io/v1/clustertrustbundles/"

// The server's authority is in a ClusterTrustBundle, which is restored when it is removed or changed, and which is the
// only one of its signer.
//
// SPEC: AUTH-2
func TestTrustBundleOfTheServer(t *testing.T) {
	s := withAccounts(t, func(c *Config) { c.AuthorizationModes = []string{"RBAC"} })
	hash := sha256.Sum256(s.certificates.authority)
	path := fmt.Sprintf("%skubernetes.io:kube-apiserver-serving:%x", bundlesPath, hash[:12])
	isOurs := func(v object.Value) bool {
		return v.At("spec", "trustBundle").Str() == string(s.certificates.authority) && len(s.certificates.authority) > 0 &&
			v.At("spec", "signerName").Str() == "kubernetes.io/kube-apiserver-serving" &&
			v.At("metadata", "managedFields").Items()[0].At("manager").Str() == "kube-controller-manager"
	}
	uid := s.eventually(path, "the authority", isOurs).At("metadata", "uid").Str()
	other, err := pki.New("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(name, signer string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"signerName":%q,"trustBundle":%q}}`, name, signer,
			other.Cert)
	}
	const old, ofOthers, ofNobody = "kubernetes.io:kube-apiserver-serving:old", "example.com:signer:x", "free"
	s.ask("POST", bundlesPath, bundle(ofOthers, "example.com/signer"), 201)
	s.ask("POST", bundlesPath, bundle(ofNobody, ""), 201)
	s.ask("POST", bundlesPath, bundle(old, "kubernetes.io/kube-apiserver-serving"), 201)
	s.eventually(bundlesPath+old, "gone", gone)
	s.ask("PATCH", path, fmt.Sprintf(`{"spec":{"trustBundle":%q}}`, other.Cert), 200)
	s.eventually(path, "mended", func(v object.Value) bool {
		return isOurs(v) && v.At("metadata", "uid").Str() == uid
	})
	s.ask("DELETE", path, "", 200)
	s.eventually(path, "there again", isOurs)
	s.ask("GET", bundlesPath+ofOthers, "", 200)
	s.ask("GET", bundlesPath+ofNobody, "", 200)
}

// There is no such bundle where the type is not served, and a server that serves v1beta1 alone has it, too.
//
// SPEC: AUTH-2
func TestTrustBundleOfAnotherVersion(t *testing.T) {
	const beta = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/"
	s := withAccounts(t, func(c *Config) {
		c.Versions.Pairs = []string{"certificates.k8s.io/v1=false", "certificates.k8s.io/v1beta1=true"}
	})
	hash := sha256.Sum256(s.certificates.authority)
	s.eventually(fmt.Sprintf("%skubernetes.io:kube-apiserver-serving:%x", beta, hash[:12]), "there", there)
	s = withAccounts(t, func(c *Config) {
		c.FeatureGates = []string{"ClusterTrustBundle=false", "ClusterTrustBundleProjection=false"}
	})
	s.eventually(bundlesPath, "not served", gone)
}
