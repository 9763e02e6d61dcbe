// Package defaults fills in what the reference fills in for built-in types: one exported function a kind, small
// functions below it, named after the field or the part they default.
//
// The functions are pure. They take an object as package schema has decoded it — non-pointer structs there even when
// empty, nil pointers absent, nil lists without omitempty null — and give the same form. They do everything that the
// reference does for the kind, the +default markers of its types included, because some rules build on what a marker
// has filled in. Feature gates have their default state of the release.
//
// Subtrees in which nothing changes are shared with the input; an object that has all its defaults comes back as it is,
// without an allocation.
//
// What the reference does only to absent fields is done to null as well, what it does to empty ones ("", 0, empty
// lists) to absent and empty ones: a pointer to zero is a value that somebody has set, a zero without pointer is not.
package defaults

import (
	"time"

	"plinth/object"
)

// For finds the defaults of a kind. It is nil for kinds that have none, and for those of which Timed knows.
func For(group, version, kind string) func(object.Value) object.Value {
	return byKind[groupVersionKind{group, version, kind}]
}

// Timed finds the defaults of a kind that depend on the time of the request; nil for all other kinds.
func Timed(group, version, kind string) func(obj object.Value, now time.Time) object.Value {
	return timedByKind[groupVersionKind{group, version, kind}]
}

type groupVersionKind struct{ group, version, kind string }

var byKind = map[groupVersionKind]func(object.Value) object.Value{
	{"", "v1", "Endpoints"}:             Endpoints,
	{"", "v1", "LimitRange"}:            LimitRange,
	{"", "v1", "Namespace"}:             Namespace,
	{"", "v1", "Node"}:                  Node,
	{"", "v1", "PersistentVolume"}:      PersistentVolume,
	{"", "v1", "PersistentVolumeClaim"}: PersistentVolumeClaim,
	{"", "v1", "Pod"}:                   Pod,
	{"", "v1", "PodTemplate"}:           PodTemplate,
	{"", "v1", "ReplicationController"}: ReplicationController,
	{"", "v1", "ResourceQuota"}:         ResourceQuota,
	{"", "v1", "Secret"}:                Secret,
	{"", "v1", "Service"}:               Service,

	{"apps", "v1", "DaemonSet"}:   DaemonSet,
	{"apps", "v1", "Deployment"}:  Deployment,
	{"apps", "v1", "ReplicaSet"}:  ReplicaSet,
	{"apps", "v1", "StatefulSet"}: StatefulSet,

	{"batch", "v1", "CronJob"}: CronJob,
	{"batch", "v1", "Job"}:     Job,

	{"autoscaling", "v1", "HorizontalPodAutoscaler"}: HorizontalPodAutoscalerV1,
	{"autoscaling", "v2", "HorizontalPodAutoscaler"}: HorizontalPodAutoscalerV2,

	{"admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"}:          MutatingAdmissionPolicy,
	{"admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding"}:   MutatingAdmissionPolicyBinding,
	{"admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"}:     MutatingWebhookConfiguration,
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"}:        ValidatingAdmissionPolicy,
	{"admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"}: ValidatingAdmissionPolicyBinding,
	{"admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"}:   ValidatingWebhookConfiguration,

	{"apiextensions.k8s.io", "v1", "CustomResourceDefinition"}:           CustomResourceDefinition,
	{"authentication.k8s.io", "v1", "TokenRequest"}:                      TokenRequest,
	{"certificates.k8s.io", "v1", "PodCertificateRequest"}:               PodCertificateRequest,
	{"discovery.k8s.io", "v1", "EndpointSlice"}:                          EndpointSlice,
	{"flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"}:                 FlowSchema,
	{"flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"}: PriorityLevelConfiguration,

	{"networking.k8s.io", "v1", "IngressClass"}:  IngressClass,
	{"networking.k8s.io", "v1", "NetworkPolicy"}: NetworkPolicy,

	{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"}: RoleBinding,
	{"rbac.authorization.k8s.io", "v1", "RoleBinding"}:        RoleBinding,

	{"resource.k8s.io", "v1", "ResourceClaim"}:         ResourceClaim,
	{"resource.k8s.io", "v1", "ResourceClaimTemplate"}: ResourceClaimTemplate,

	{"scheduling.k8s.io", "v1", "PriorityClass"}: PriorityClass,

	{"storage.k8s.io", "v1", "CSIDriver"}:        CSIDriver,
	{"storage.k8s.io", "v1", "StorageClass"}:     StorageClass,
	{"storage.k8s.io", "v1", "VolumeAttachment"}: VolumeAttachment,
}

var timedByKind = map[groupVersionKind]func(object.Value, time.Time) object.Value{
	{"resource.k8s.io", "v1", "DeviceTaintRule"}: DeviceTaintRule,
	{"resource.k8s.io", "v1", "ResourceSlice"}:   ResourceSlice,
}

// Values that are filled in in several places.
var (
	emptyMap = object.MapOf()
	zero     = object.IntOf(0)
	one      = object.IntOf(1)
	no       = object.BoolOf(false)
	yes      = object.BoolOf(true)
)
