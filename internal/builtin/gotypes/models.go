package gotypes

import (
	"reflect"
	"sync"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	storagemigration "k8s.io/api/storagemigration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"plinth/schema"
)

// Model returns the compiled form of a type that no resource has as its own, but that OpenAPI documents and requests
// speak of, by its OpenAPI name; nil if there is none of that name.
func Model(name string) *schema.Type {
	if t, ok := models()[name]; ok {
		return compiler.Type(t)
	}
	return nil
}

// models are the lists of all kinds, the options of requests, and what discovery and errors are made of.
var models = sync.OnceValue(func() map[string]reflect.Type {
	types := []reflect.Type{
		reflect.TypeFor[admissionregistration.MutatingAdmissionPolicyBindingList](),
		reflect.TypeFor[admissionregistration.MutatingAdmissionPolicyList](),
		reflect.TypeFor[admissionregistration.MutatingWebhookConfigurationList](),
		reflect.TypeFor[admissionregistration.ValidatingAdmissionPolicyBindingList](),
		reflect.TypeFor[admissionregistration.ValidatingAdmissionPolicyList](),
		reflect.TypeFor[admissionregistration.ValidatingWebhookConfigurationList](),
		reflect.TypeFor[apiextensions.CustomResourceDefinitionList](),
		reflect.TypeFor[apps.ControllerRevisionList](),
		reflect.TypeFor[apps.DaemonSetList](),
		reflect.TypeFor[apps.DeploymentList](),
		reflect.TypeFor[apps.ReplicaSetList](),
		reflect.TypeFor[apps.StatefulSetList](),
		reflect.TypeFor[autoscaling.HorizontalPodAutoscalerList](),
		reflect.TypeFor[autoscaling2.HorizontalPodAutoscalerList](),
		reflect.TypeFor[batch.CronJobList](),
		reflect.TypeFor[batch.JobList](),
		reflect.TypeFor[certificates.CertificateSigningRequestList](),
		reflect.TypeFor[certificates.ClusterTrustBundleList](),
		reflect.TypeFor[certificates.PodCertificateRequestList](),
		reflect.TypeFor[coordination.LeaseList](),
		reflect.TypeFor[core.ComponentStatusList](),
		reflect.TypeFor[core.ConfigMapList](),
		reflect.TypeFor[core.EndpointsList](),
		reflect.TypeFor[core.EventList](),
		reflect.TypeFor[core.LimitRangeList](),
		reflect.TypeFor[core.NamespaceList](),
		reflect.TypeFor[core.NodeList](),
		reflect.TypeFor[core.PersistentVolumeClaimList](),
		reflect.TypeFor[core.PersistentVolumeList](),
		reflect.TypeFor[core.PodList](),
		reflect.TypeFor[core.PodTemplateList](),
		reflect.TypeFor[core.ReplicationControllerList](),
		reflect.TypeFor[core.ResourceQuotaList](),
		reflect.TypeFor[core.SecretList](),
		reflect.TypeFor[core.ServiceAccountList](),
		reflect.TypeFor[core.ServiceList](),
		reflect.TypeFor[discovery.EndpointSliceList](),
		reflect.TypeFor[events.EventList](),
		reflect.TypeFor[flowcontrol.FlowSchemaList](),
		reflect.TypeFor[flowcontrol.PriorityLevelConfigurationList](),
		reflect.TypeFor[networking.IPAddressList](),
		reflect.TypeFor[networking.IngressClassList](),
		reflect.TypeFor[networking.IngressList](),
		reflect.TypeFor[networking.NetworkPolicyList](),
		reflect.TypeFor[networking.ServiceCIDRList](),
		reflect.TypeFor[node.RuntimeClassList](),
		reflect.TypeFor[policy.PodDisruptionBudgetList](),
		reflect.TypeFor[rbac.ClusterRoleBindingList](),
		reflect.TypeFor[rbac.ClusterRoleList](),
		reflect.TypeFor[rbac.RoleBindingList](),
		reflect.TypeFor[rbac.RoleList](),
		reflect.TypeFor[resource.DeviceClassList](),
		reflect.TypeFor[resource.DeviceTaintRuleList](),
		reflect.TypeFor[resource.ResourceClaimList](),
		reflect.TypeFor[resource.ResourceClaimTemplateList](),
		reflect.TypeFor[resource.ResourceSliceList](),
		reflect.TypeFor[scheduling.PriorityClassList](),
		reflect.TypeFor[storage.CSIDriverList](),
		reflect.TypeFor[storage.CSINodeList](),
		reflect.TypeFor[storage.CSIStorageCapacityList](),
		reflect.TypeFor[storage.StorageClassList](),
		reflect.TypeFor[storage.VolumeAttachmentList](),
		reflect.TypeFor[storage.VolumeAttributesClassList](),
		reflect.TypeFor[storagemigration.StorageVersionMigrationList](),

		reflect.TypeFor[autoscaling.Scale](),
		reflect.TypeFor[core.NodeProxyOptions](),
		reflect.TypeFor[core.PodAttachOptions](),
		reflect.TypeFor[core.PodExecOptions](),
		reflect.TypeFor[core.PodLogOptions](),
		reflect.TypeFor[core.PodPortForwardOptions](),
		reflect.TypeFor[core.PodProxyOptions](),
		reflect.TypeFor[core.ServiceProxyOptions](),

		reflect.TypeFor[meta.APIGroup](),
		reflect.TypeFor[meta.APIGroupList](),
		reflect.TypeFor[meta.APIResourceList](),
		reflect.TypeFor[meta.APIVersions](),
		reflect.TypeFor[meta.CreateOptions](),
		reflect.TypeFor[meta.DeleteOptions](),
		reflect.TypeFor[meta.GetOptions](),
		reflect.TypeFor[meta.ListMeta](),
		reflect.TypeFor[meta.ListOptions](),
		reflect.TypeFor[meta.ObjectMeta](),
		reflect.TypeFor[meta.Patch](),
		reflect.TypeFor[meta.PatchOptions](),
		reflect.TypeFor[meta.Status](),
		reflect.TypeFor[meta.UpdateOptions](),
		reflect.TypeFor[meta.WatchEvent](),
		reflect.TypeFor[version.Info](),
	}
	byName := make(map[string]reflect.Type, len(types))
	for _, t := range types {
		byName[reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }).OpenAPIModelName()] = t
	}
	return byName
})
