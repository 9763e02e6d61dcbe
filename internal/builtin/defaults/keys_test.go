package defaults_test

import (
	"slices"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/builtin/defaults"
)

// withoutDefaults are the served kinds in which the reference fills in nothing.
var withoutDefaults = [][3]string{
	{"", "v1", "Binding"}, {"", "v1", "ComponentStatus"}, {"", "v1", "ConfigMap"}, {"", "v1", "Event"},
	{"", "v1", "ServiceAccount"},
	{"apps", "v1", "ControllerRevision"},
	{"authentication.k8s.io", "v1", "SelfSubjectReview"}, {"authentication.k8s.io", "v1", "TokenReview"},
	{"authorization.k8s.io", "v1", "LocalSubjectAccessReview"},
	{"authorization.k8s.io", "v1", "SelfSubjectAccessReview"},
	{"authorization.k8s.io", "v1", "SelfSubjectRulesReview"},
	{"authorization.k8s.io", "v1", "SubjectAccessReview"},
	{"certificates.k8s.io", "v1", "CertificateSigningRequest"},
	{"certificates.k8s.io", "v1", "ClusterTrustBundle"},
	{"coordination.k8s.io", "v1", "Lease"},
	{"events.k8s.io", "v1", "Event"},
	{"networking.k8s.io", "v1", "IPAddress"}, {"networking.k8s.io", "v1", "Ingress"},
	{"networking.k8s.io", "v1", "ServiceCIDR"},
	{"node.k8s.io", "v1", "RuntimeClass"},
	{"policy", "v1", "PodDisruptionBudget"},
	{"rbac.authorization.k8s.io", "v1", "ClusterRole"}, {"rbac.authorization.k8s.io", "v1", "Role"},
	{"resource.k8s.io", "v1", "DeviceClass"},
	{"storage.k8s.io", "v1", "CSINode"}, {"storage.k8s.io", "v1", "CSIStorageCapacity"},
	{"storage.k8s.io", "v1", "VolumeAttributesClass"},
	{"storagemigration.k8s.io", "v1", "StorageVersionMigration"},
}

// Every key of the tables is a served kind, so that a mistyped one is an error and not a default that is never filled
// in; and every served kind is in a table, or in the list of those without defaults.
//
// SPEC: VAL-4
func TestKeysAreServedKinds(t *testing.T) {
	kinds, subresources := map[[3]string]bool{}, map[[3]string]bool{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		kinds[[3]string{r.Group, r.Version, r.Kind}] = true
		for _, s := range r.Subresources {
			subresources[[3]string{s.Group, s.Version, s.Kind}] = true
		}
	}
	keys := defaults.Keys()
	for _, key := range keys {
		if !kinds[key] && !subresources[key] {
			t.Errorf("%q is not served", key)
		}
	}
	for _, key := range withoutDefaults {
		if !kinds[key] {
			t.Errorf("%q is not served", key)
		}
	}
	for kind := range kinds {
		if slices.Contains(keys, kind) == slices.Contains(withoutDefaults, kind) {
			t.Errorf("%q belongs either in defaults.byKind or in withoutDefaults", kind)
		}
	}
}
