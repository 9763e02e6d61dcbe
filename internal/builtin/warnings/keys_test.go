package warnings_test

import (
	"slices"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/builtin/warnings"
)

// withoutWarnings are the served kinds whose writers the reference never warns.
var withoutWarnings = [][2]string{
	{"", "Binding"}, {"", "ComponentStatus"}, {"", "ConfigMap"}, {"", "Event"}, {"", "LimitRange"},
	{"", "Namespace"},
	{"apiextensions.k8s.io", "CustomResourceDefinition"},
	{"apps", "ControllerRevision"},
	{"authentication.k8s.io", "SelfSubjectReview"}, {"authentication.k8s.io", "TokenReview"},
	{"authorization.k8s.io", "LocalSubjectAccessReview"}, {"authorization.k8s.io", "SelfSubjectAccessReview"},
	{"authorization.k8s.io", "SelfSubjectRulesReview"}, {"authorization.k8s.io", "SubjectAccessReview"},
	{"autoscaling", "HorizontalPodAutoscaler"},
	{"certificates.k8s.io", "CertificateSigningRequest"}, {"certificates.k8s.io", "ClusterTrustBundle"},
	{"certificates.k8s.io", "PodCertificateRequest"},
	{"coordination.k8s.io", "Lease"},
	{"events.k8s.io", "Event"},
	{"flowcontrol.apiserver.k8s.io", "FlowSchema"},
	{"flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"},
	{"networking.k8s.io", "IPAddress"}, {"networking.k8s.io", "IngressClass"},
	{"networking.k8s.io", "ServiceCIDR"},
	{"policy", "PodDisruptionBudget"},
	{"rbac.authorization.k8s.io", "ClusterRole"}, {"rbac.authorization.k8s.io", "ClusterRoleBinding"},
	{"rbac.authorization.k8s.io", "Role"}, {"rbac.authorization.k8s.io", "RoleBinding"},
	{"resource.k8s.io", "DeviceClass"}, {"resource.k8s.io", "DeviceTaintRule"},
	{"resource.k8s.io", "ResourceClaim"}, {"resource.k8s.io", "ResourceClaimTemplate"},
	{"scheduling.k8s.io", "PriorityClass"},
	{"storage.k8s.io", "CSINode"}, {"storage.k8s.io", "VolumeAttachment"},
	{"storage.k8s.io", "VolumeAttributesClass"},
	{"storagemigration.k8s.io", "StorageVersionMigration"},
}

// Every key of the table is a served kind, so that a mistyped one is an error and not a warning that never comes; and
// every served kind is in the table, or in the list of those without warnings.
func TestKeysAreServedKinds(t *testing.T) {
	served := map[[2]string]bool{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		served[[2]string{r.Group, r.Kind}] = true
	}
	keys := warnings.Keys()
	for _, key := range slices.Concat(keys, withoutWarnings) {
		if !served[key] {
			t.Errorf("%q is not served", key)
		}
	}
	for kind := range served {
		if slices.Contains(keys, kind) == slices.Contains(withoutWarnings, kind) {
			t.Errorf("%q belongs either in warnings.kinds or in withoutWarnings", kind)
		}
	}
}
