package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Every plugin leaves alone what it is not about: requests for all kinds of objects and subresources, by all
// operations, in a world with nothing but namespaces.
//
// SPEC: AUTH-3
func TestOtherRequests(t *testing.T) {
	with := func(a attempt, group, resource, subresource string) attempt {
		a.group, a.resource, a.subresource = group, resource, subresource
		return a
	}
	jane := user.DefaultInfo{Name: "jane", Groups: []string{"system:authenticated"}}
	var attempts []attempt
	for _, a := range policyAttempts() {
		a.user = jane
		attempts = append(attempts, a)
		if a.resource == "pods" || a.resource == "deployments" {
			if a.subresource == "" {
				attempts = append(attempts, with(a, a.group, a.resource, "status"))
			}
		}
		if a.object != "" && a.operation == admission.Create { // the same object, deleted and updated without a change
			a.operation, a.old, a.options = admission.Update, a.object, &metav1.UpdateOptions{}
			attempts = append(attempts, a)
			a.operation, a.object, a.options = admission.Delete, "", &metav1.DeleteOptions{}
			attempts = append(attempts, a)
		}
	}
	plugins := []string{
		"AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
		"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds",
		"DenyServiceExternalIPs", "ExtendedResourceToleration", "LimitPodHardAntiAffinityTopology", "LimitRanger",
		"NamespaceExists", "NamespaceLifecycle", "NodeDeclaredFeatureValidator", "NodeRestriction",
		"OwnerReferencesPermissionEnforcement",
		"PersistentVolumeClaimResize", "PodGroupProtection", "PodNodeSelector", "PodResizeValidator", "PodSecurity",
		"PodTolerationRestriction", "PodTopologyLabels", "Priority",
		"RuntimeClass", "StorageObjectInUseProtection", "TaintNodesByCondition",
	}
	total := tally{}
	for _, plugin := range plugins {
		t.Run(plugin, func(t *testing.T) {
			w := (&world{
				plugin: plugin, mapper: meta.NewDefaultRESTMapper(nil),
				objects: []string{namespaceDoc("ns", "", ""), namespaceDoc("other", "", "")},
			}).build(t)
			for _, a := range attempts {
				w.compare(t, a, &total)
			}
		})
	}
	total.atLeast(t, 10, 600, 0)
}
