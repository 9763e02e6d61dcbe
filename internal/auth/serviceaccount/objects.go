package serviceaccount

import (
	"context"
	"strings"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// Objects finds what tokens are bound to, as it is now.
type Objects struct {
	engine *engine.Engine
	types  map[string]*engine.Resource
}

// NewObjects finds objects by an engine that serves these types.
func NewObjects(e *engine.Engine, types *engine.Registry) *Objects {
	o := &Objects{engine: e, types: map[string]*engine.Resource{}}
	for _, name := range []string{"serviceaccounts", "secrets", "pods", "nodes"} {
		o.types[name] = types.Builtin().Find("", "v1", name)
	}
	return o
}

// get reads an object. Where there is none, it is an error.
func (o *Objects) get(ctx context.Context, resource, namespace, name string) (*engine.Object, error) {
	result, err := o.engine.Get(ctx, &engine.Request{Resource: o.types[resource], Namespace: namespace, Name: name}, "")
	if err != nil {
		return nil, err
	}
	return result.Object, nil
}

// MarkUsed notes on the Secret of a legacy token on which day it was used.
func (o *Objects) MarkUsed(ctx context.Context, secret *engine.Object, today string) error {
	namespace, name, _ := strings.Cut(secret.Key.Name, "/")
	rq := &engine.Request{Resource: o.types["secrets"], Namespace: namespace, Name: name, FieldManager: "kube-apiserver"}
	patch := object.Fields("metadata", object.Fields(
		"uid", object.StringOf(secret.Sidecar.UID), "labels",
		object.Fields(access.LegacyTokenLastUsed, object.StringOf(today))))
	_, err := o.engine.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, patch)})
	return err
}
