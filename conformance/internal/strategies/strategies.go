// Package strategies is a table of the functions that the API server calls before it stores an object of a built-in
// kind. Upstream has no such table: the storage of each kind refers to its functions.
package strategies

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apiserverinternal/storageversion"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/coordination/leasecandidate"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	registrynamespace "k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/lifecycle/eviction"
	"k8s.io/kubernetes/pkg/registry/lifecycle/evictionrequest"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourcepoolstatusrequest"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/compositepodgroup"
	"k8s.io/kubernetes/pkg/registry/scheduling/podgroup"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/scheduling/workload"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
	clock "k8s.io/utils/clock/testing"

	_ "plinth/conformance/internal/scheme" // the types that strategies are called with
)

// Strategies are the strategies of one kind: for its main URL, and for its subresources.
type Strategies struct {
	Main         Main
	Subresources map[string]rest.RESTUpdateStrategy
}

// Main is a strategy for create and update.
type Main interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func plain(s Main) Strategies { return Strategies{s, nil} }

func withStatus(s Main, status rest.RESTUpdateStrategy) Strategies {
	return Strategies{s, subresources{"status": status}}
}

type subresources = map[string]rest.RESTUpdateStrategy

var (
	policies = validatingadmissionpolicy.NewStrategy(nil, nil)
	claims   = resourceclaim.NewStrategy(administrative{}, anybody{})
	requests = podcertificaterequest.NewStrategy()

	evictions        = eviction.NewStrategy(clock.NewFakePassiveClock(Now))
	evictionRequests = evictionrequest.NewStrategy()

	podGroups  = podgroup.NewStrategy()
	composites = compositepodgroup.NewStrategy()

	// unresolved resolves the kind of a binding's parameters, which only has to exist: no permissions are checked.
	unresolved = resolver.ResourceResolverFunc(func(schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, nil
	})
)

// Now is the time of the strategies that depend on it: that from which the certificates in the tests of package
// validation are valid.
var Now = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// anybody authorizes every request.
type anybody struct{}

func (anybody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// administrative returns namespaces in which claims may have administrative access.
type administrative struct{ typedcorev1.NamespaceInterface }

func (administrative) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: "true"}}}, nil
}

// Of has the strategies of every kind that can be written.
var Of = map[schema.GroupKind]Strategies{
	{Kind: "ConfigMap"}:  plain(configmap.Strategy),
	{Kind: "Endpoints"}:  plain(endpoint.Strategy),
	{Kind: "Event"}:      plain(event.Strategy),
	{Kind: "LimitRange"}: plain(limitrange.Strategy),
	{Kind: "Namespace"}: {registrynamespace.Strategy,
		subresources{"status": registrynamespace.StatusStrategy, "finalize": registrynamespace.FinalizeStrategy}},
	{Kind: "Node"}:                  withStatus(node.Strategy, node.StatusStrategy),
	{Kind: "PersistentVolume"}:      withStatus(persistentvolume.Strategy, persistentvolume.StatusStrategy),
	{Kind: "PersistentVolumeClaim"}: withStatus(persistentvolumeclaim.Strategy, persistentvolumeclaim.StatusStrategy),
	{Kind: "Pod"}: {pod.Strategy, subresources{
		"status": pod.StatusStrategy, "ephemeralcontainers": pod.EphemeralContainersStrategy, "resize": pod.ResizeStrategy,
	}},
	{Kind: "PodTemplate"}:           plain(podtemplate.Strategy),
	{Kind: "ReplicationController"}: withStatus(replicationcontroller.Strategy, replicationcontroller.StatusStrategy),
	{Kind: "ResourceQuota"}:         withStatus(resourcequota.Strategy, resourcequota.StatusStrategy),
	{Kind: "Secret"}:                plain(secret.Strategy),
	{Kind: "Service"}:               withStatus(service.Strategy, service.StatusStrategy),
	{Kind: "ServiceAccount"}:        plain(serviceaccount.Strategy),

	{Group: "events.k8s.io", Kind: "Event"}: plain(event.Strategy),

	{Group: "apps", Kind: "ControllerRevision"}: plain(controllerrevision.Strategy),
	{Group: "apps", Kind: "DaemonSet"}:          withStatus(daemonset.Strategy, daemonset.StatusStrategy),
	{Group: "apps", Kind: "Deployment"}:         withStatus(deployment.Strategy, deployment.StatusStrategy),
	{Group: "apps", Kind: "ReplicaSet"}:         withStatus(replicaset.Strategy, replicaset.StatusStrategy),
	{Group: "apps", Kind: "StatefulSet"}:        withStatus(statefulset.Strategy, statefulset.StatusStrategy),

	{Group: "batch", Kind: "CronJob"}: withStatus(cronjob.Strategy, cronjob.StatusStrategy),
	{Group: "batch", Kind: "Job"}:     withStatus(job.Strategy, job.StatusStrategy),

	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: withStatus(horizontalpodautoscaler.Strategy,
		horizontalpodautoscaler.StatusStrategy),

	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {certificates.Strategy, subresources{
		"status": certificates.StatusStrategy, "approval": certificates.ApprovalStrategy,
	}},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}: plain(clustertrustbundle.Strategy),
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}: withStatus(requests,
		podcertificaterequest.NewStatusStrategy(requests, anybody{}, clock.NewFakePassiveClock(Now))),

	{Group: "coordination.k8s.io", Kind: "Lease"}:          plain(lease.Strategy),
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}: plain(leasecandidate.Strategy),

	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: plain(endpointslice.Strategy),

	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}: withStatus(flowschema.Strategy,
		flowschema.StatusStrategy),
	{Group: "flowcontrol.apiserver.k8s.io",
		Kind: "PriorityLevelConfiguration"}: withStatus(prioritylevelconfiguration.Strategy,
		prioritylevelconfiguration.StatusStrategy),

	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}: withStatus(storageversion.Strategy,
		storageversion.StatusStrategy),

	{Group: "lifecycle.k8s.io", Kind: "Eviction"}: withStatus(evictions, eviction.NewStatusStrategy(evictions)),
	{Group: "lifecycle.k8s.io", Kind: "EvictionRequest"}: withStatus(evictionRequests,
		evictionrequest.NewStatusStrategy(evictionRequests)),

	{Group: "networking.k8s.io", Kind: "Ingress"}:       withStatus(ingress.Strategy, ingress.StatusStrategy),
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  plain(ingressclass.Strategy),
	{Group: "networking.k8s.io", Kind: "IPAddress"}:     plain(ipaddress.Strategy),
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: plain(networkpolicy.Strategy),
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:   withStatus(servicecidr.Strategy, servicecidr.StatusStrategy),

	{Group: "node.k8s.io", Kind: "RuntimeClass"}: plain(runtimeclass.Strategy),

	{Group: "policy", Kind: "PodDisruptionBudget"}: withStatus(poddisruptionbudget.Strategy,
		poddisruptionbudget.StatusStrategy),

	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        plain(clusterrole.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: plain(clusterrolebinding.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               plain(role.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        plain(rolebinding.Strategy),

	{Group: "resource.k8s.io", Kind: "DeviceClass"}: plain(deviceclass.Strategy),
	{Group: "resource.k8s.io", Kind: "DeviceTaintRule"}: withStatus(devicetaintrule.Strategy,
		devicetaintrule.StatusStrategy),
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:         withStatus(claims, resourceclaim.NewStatusStrategy(claims)),
	{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}: plain(resourceclaimtemplate.NewStrategy(administrative{})),
	{Group: "resource.k8s.io", Kind: "ResourcePoolStatusRequest"}: withStatus(resourcepoolstatusrequest.Strategy,
		resourcepoolstatusrequest.StatusStrategy),
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}: plain(resourceslice.Strategy),

	{Group: "scheduling.k8s.io", Kind: "CompositePodGroup"}: withStatus(composites,
		compositepodgroup.NewStatusStrategy(composites)),
	{Group: "scheduling.k8s.io", Kind: "PodGroup"}:      withStatus(podGroups, podgroup.NewStatusStrategy(podGroups)),
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: plain(priorityclass.Strategy),
	{Group: "scheduling.k8s.io", Kind: "Workload"}:      plain(workload.Strategy),

	{Group: "storage.k8s.io", Kind: "CSIDriver"}:          plain(csidriver.Strategy),
	{Group: "storage.k8s.io", Kind: "CSINode"}:            withStatus(csinode.Strategy, csinode.StatusStrategy),
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}: plain(csistoragecapacity.Strategy),
	{Group: "storage.k8s.io", Kind: "StorageClass"}:       plain(storageclass.Strategy),
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}: withStatus(volumeattachment.Strategy,
		volumeattachment.StatusStrategy),
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: plain(volumeattributesclass.Strategy),

	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: withStatus(storagemigration.Strategy,
		storagemigration.StatusStrategy),

	{Group: "admissionregistration.k8s.io",
		Kind: "MutatingAdmissionPolicy"}: plain(mutatingadmissionpolicy.NewStrategy(nil, nil)),
	{Group: "admissionregistration.k8s.io",
		Kind: "MutatingAdmissionPolicyBinding"}: plain(mutatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved)),
	{Group: "admissionregistration.k8s.io",
		Kind: "MutatingWebhookConfiguration"}: plain(mutatingwebhookconfiguration.Strategy),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}: withStatus(policies,
		validatingadmissionpolicy.NewStatusStrategy(policies)),
	{Group: "admissionregistration.k8s.io",
		Kind: "ValidatingAdmissionPolicyBinding"}: plain(validatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved)),
	{Group: "admissionregistration.k8s.io",
		Kind: "ValidatingWebhookConfiguration"}: plain(validatingwebhookconfiguration.Strategy),
}
