package gotypes

import (
	"reflect"

	authentication "k8s.io/api/authentication/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// Models are the types of OpenAPI documents that are not the types of resources: the options and bodies of
// requests to subresources, and the types of discovery documents and errors.
func Models() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[authentication.TokenRequest](),
		reflect.TypeFor[autoscaling.Scale](),
		reflect.TypeFor[core.NodeProxyOptions](),
		reflect.TypeFor[core.PodAttachOptions](),
		reflect.TypeFor[core.PodExecOptions](),
		reflect.TypeFor[core.PodLogOptions](),
		reflect.TypeFor[core.PodPortForwardOptions](),
		reflect.TypeFor[core.PodProxyOptions](),
		reflect.TypeFor[core.ServiceProxyOptions](),
		reflect.TypeFor[policy.Eviction](),

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
}
