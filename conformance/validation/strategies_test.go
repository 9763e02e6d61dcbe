package validation

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
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
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
	clock "k8s.io/utils/clock/testing"
)

// strategies are what the reference calls for a kind: on its main URL, and on status, nil where that is not there or not
// within reach.
type strategies struct {
	create rest.RESTCreateStrategy
	update rest.RESTUpdateStrategy
	status rest.RESTUpdateStrategy
	// approval is for the one kind that has this subresource.
	approval rest.RESTUpdateStrategy
}

// both is a strategy that says how to create and how to update.
type both interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func plain(s both) strategies { return strategies{create: s, update: s} }

func withStatus(s both, status rest.RESTUpdateStrategy) strategies {
	return strategies{create: s, update: s, status: status}
}

var (
	policies = validatingadmissionpolicy.NewStrategy(nil, nil)
	claims   = resourceclaim.NewStrategy(nil, nil)

	// unresolved is asked of a binding with parameters whether it is there, and of nobody's rights.
	unresolved = resolver.ResourceResolverFunc(func(schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, nil
	})

	podCertificates = podcertificaterequest.NewStrategy()
	// chainBegins is when the certificates in testdata begin.
	chainBegins = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
)

// anybody lets everybody do everything.
type anybody struct{}

func (anybody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

var strategiesOf = map[schema.GroupKind]strategies{
	{Kind: "ConfigMap"}:             plain(configmap.Strategy),
	{Kind: "Endpoints"}:             plain(endpoint.Strategy),
	{Kind: "Event"}:                 plain(event.Strategy),
	{Kind: "LimitRange"}:            plain(limitrange.Strategy),
	{Kind: "Namespace"}:             withStatus(registrynamespace.Strategy, registrynamespace.StatusStrategy),
	{Kind: "Node"}:                  withStatus(node.Strategy, node.StatusStrategy),
	{Kind: "PersistentVolume"}:      withStatus(persistentvolume.Strategy, persistentvolume.StatusStrategy),
	{Kind: "PersistentVolumeClaim"}: withStatus(persistentvolumeclaim.Strategy, persistentvolumeclaim.StatusStrategy),
	{Kind: "Pod"}:                   withStatus(pod.Strategy, pod.StatusStrategy),
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

	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: withStatus(horizontalpodautoscaler.Strategy, horizontalpodautoscaler.StatusStrategy),

	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {certificates.Strategy, certificates.Strategy, certificates.StatusStrategy, certificates.ApprovalStrategy},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        plain(clustertrustbundle.Strategy),
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     withStatus(podCertificates, podcertificaterequest.NewStatusStrategy(podCertificates, anybody{}, clock.NewFakePassiveClock(chainBegins))),

	{Group: "coordination.k8s.io", Kind: "Lease"}: plain(lease.Strategy),

	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: plain(endpointslice.Strategy),

	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}:                 withStatus(flowschema.Strategy, flowschema.StatusStrategy),
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: withStatus(prioritylevelconfiguration.Strategy, prioritylevelconfiguration.StatusStrategy),

	{Group: "networking.k8s.io", Kind: "Ingress"}:       withStatus(ingress.Strategy, ingress.StatusStrategy),
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  plain(ingressclass.Strategy),
	{Group: "networking.k8s.io", Kind: "IPAddress"}:     plain(ipaddress.Strategy),
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: plain(networkpolicy.Strategy),
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:   withStatus(servicecidr.Strategy, servicecidr.StatusStrategy),

	{Group: "node.k8s.io", Kind: "RuntimeClass"}: plain(runtimeclass.Strategy),

	{Group: "policy", Kind: "PodDisruptionBudget"}: withStatus(poddisruptionbudget.Strategy, poddisruptionbudget.StatusStrategy),

	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        plain(clusterrole.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: plain(clusterrolebinding.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               plain(role.Strategy),
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        plain(rolebinding.Strategy),

	{Group: "resource.k8s.io", Kind: "DeviceClass"}:           plain(deviceclass.Strategy),
	{Group: "resource.k8s.io", Kind: "DeviceTaintRule"}:       withStatus(devicetaintrule.Strategy, devicetaintrule.StatusStrategy),
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:         withStatus(claims, resourceclaim.NewStatusStrategy(claims)),
	{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}: plain(resourceclaimtemplate.NewStrategy(nil)),
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:         plain(resourceslice.Strategy),

	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: plain(priorityclass.Strategy),

	{Group: "storage.k8s.io", Kind: "CSIDriver"}:             plain(csidriver.Strategy),
	{Group: "storage.k8s.io", Kind: "CSINode"}:               plain(csinode.Strategy),
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:    plain(csistoragecapacity.Strategy),
	{Group: "storage.k8s.io", Kind: "StorageClass"}:          plain(storageclass.Strategy),
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:      withStatus(volumeattachment.Strategy, volumeattachment.StatusStrategy),
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: plain(volumeattributesclass.Strategy),

	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: withStatus(storagemigration.Strategy, storagemigration.StatusStrategy),

	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          plain(mutatingadmissionpolicy.NewStrategy(nil, nil)),
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   plain(mutatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved)),
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     plain(mutatingwebhookconfiguration.Strategy),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        withStatus(policies, validatingadmissionpolicy.NewStatusStrategy(policies)),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: plain(validatingadmissionpolicybinding.NewStrategy(nil, nil, unresolved)),
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   plain(validatingwebhookconfiguration.Strategy),
}
