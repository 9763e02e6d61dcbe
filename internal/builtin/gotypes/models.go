package gotypes

import (
	"reflect"
	"sync"

	autoscaling "k8s.io/api/autoscaling/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"plinth/schema"
)

// Model returns the compiled form of a type that is not the type of a resource but occurs in OpenAPI documents and
// requests, by its OpenAPI name; nil if the name is unknown.
func Model(name string) *schema.Type {
	if t, ok := models()[name]; ok {
		return compiler.Type(t)
	}
	return nil
}

// models are the options of requests, and the types of discovery documents and errors.
var models = sync.OnceValue(func() map[string]reflect.Type {
	types := []reflect.Type{
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
