package plane

import (
	"context"

	"plinth/internal/access"
	"plinth/internal/admission"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// plugins makes the admission plugins. The store and the registry are there already; the engine is not, and is used
// only when a request is admitted.
func (p *Plane) plugins() (admission.Plugins, error) {
	c := p.config.Admission
	c.Store, c.Registry = p.Store, p.Registry
	c.Features, c.Version, c.Now, c.Logger = p.config.Features, Version, p.config.Now, p.config.Logger
	c.CreateNamespace, c.Endpoint, c.InProcess = p.createNamespace, p.services().Endpoint, p.config.Webhooks
	c.Expressions, c.Egress = p.Expressions, p.config.Egress
	c.Follow = func(run func(context.Context)) { p.follow = append(p.follow, run) }
	return admission.New(c)
}

// createNamespace creates a namespace for a request in it (the plugin NamespaceAutoProvision). All plugins see this
// create, too.
func (p *Plane) createNamespace(ctx context.Context, name string) error {
	rq := &engine.Request{Resource: p.Registry.Builtin().Find("", "v1", "namespaces"), FieldManager: "kube-apiserver",
		User: access.User{Name: "system:apiserver", Groups: []string{access.Masters, access.Authenticated}}}
	body := object.Fields("metadata", object.Fields("name", object.StringOf(name)))
	_, err := p.Engine.Create(ctx, rq, object.Parsed{Value: body})
	return err
}

// namespaceLabel returns the value of a label of a namespace, as of the newest revision.
func (p *Plane) namespaceLabel(ctx context.Context, namespace, label string) (string, error) {
	v, _, err := p.Store.Live(ctx, store.Key{Resource: engine.Namespaces, Name: namespace}, true)
	if err != nil {
		return "", err
	}
	if v == nil {
		return "", apierr.NewNotFound(apierr.Type{Name: "namespaces"}, namespace)
	}
	value, _ := engine.Labels{Of: v.Sidecar}.Lookup(label)
	return value, nil
}
