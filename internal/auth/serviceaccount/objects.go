package serviceaccount

import (
	"context"
	"strings"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// Objects reads the objects that tokens are bound to.
type Objects struct {
	engine *engine.Engine
	types  map[string]*engine.Resource // by resource: "pods"
}

// NewObjects returns Objects that reads from an engine.
func NewObjects(e *engine.Engine, types *engine.Registry) *Objects {
	o := &Objects{engine: e, types: map[string]*engine.Resource{}}
	for _, name := range []string{"serviceaccounts", "secrets", "pods", "nodes"} {
		o.types[name] = types.Builtin().Find("", "v1", name)
	}
	for _, name := range webhookResources {
		o.types[name] = types.Builtin().Find(admissionGroup, "v1", name)
	}
	return o
}

// get returns the latest version of an object; an apierr.NotFound if it does not exist.
func (o *Objects) get(ctx context.Context, resource, namespace, name string) (*engine.Object, error) {
	if o.types[resource] == nil { // --runtime-config may have turned it off
		return nil, apierr.NewNotFound(apierr.Type{Name: resource}, name)
	}
	result, err := o.engine.Get(ctx, &engine.Request{Resource: o.types[resource], Namespace: namespace, Name: name}, "")
	if err != nil {
		return nil, err
	}
	return result.Object, nil
}

// MarkUsed records the day of the last use of a legacy token, in a label of its Secret. The UID in the patch makes it
// fail if the Secret has been replaced by another one with the same name.
func (o *Objects) MarkUsed(ctx context.Context, secret *engine.Object, today string) error {
	namespace, name, _ := strings.Cut(secret.Key.Name, "/")
	rq := &engine.Request{Resource: o.types["secrets"], Namespace: namespace, Name: name, FieldManager: "kube-apiserver"}
	patch := object.Fields("metadata", object.Fields(
		"uid", object.StringOf(secret.Sidecar.UID), "labels",
		object.Fields(access.LegacyTokenLastUsed, object.StringOf(today))))
	_, err := o.engine.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, patch)})
	return err
}
