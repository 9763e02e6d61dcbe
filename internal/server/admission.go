package server

import (
	"context"
	"fmt"

	"plinth/internal/access"
	"plinth/internal/admission"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/metrics"
	"plinth/internal/peers"
	"plinth/internal/store"
	"plinth/object"
)

// admissionPlugins makes the admission plugins. The store and the registry are there already; the engine is not, and is
// used only when a request is admitted.
func (s *Server) admissionPlugins() (admission.Plugins, error) {
	c := &s.config
	counts := metrics.NewAdmission(peers.HostIdentity())
	s.shown = append(s.shown, counts.Collectors()...)
	var configurations map[string][]byte
	if c.AdmissionConfig != "" {
		var err error
		if configurations, err = admission.LoadConfigurations(c.AdmissionConfig); err != nil {
			return admission.Plugins{}, fmt.Errorf("--admission-control-config-file: %w", err)
		}
	}
	return admission.New(admission.Config{
		Selection:       c.plugins(),
		CreateNamespace: s.createNamespace,
		Store:           s.store, Registry: s.registry, Features: s.features, Version: Version,
		Now: c.Now, Configurations: configurations,
		NotReadyTolerationSeconds:    c.NotReadyTolerationSeconds,
		UnreachableTolerationSeconds: c.UnreachableTolerationSeconds,
		Endpoint:                     s.services().Endpoint,
		InProcess:                    c.Webhooks,
		Expressions:                  &s.expressions,
		Metrics:                      counts.Hooks(),
		Logger:                       c.Logger,
		Follow:                       func(run func(context.Context)) { s.follow = append(s.follow, run) },
	})
}

// plugins says which admission plugins are on.
func (c *Config) plugins() admission.Selection {
	return admission.Selection{Only: c.AdmissionControl, Enabled: c.EnableAdmission, Disabled: c.DisableAdmission}
}

// createNamespace creates a namespace for a request in it (the plugin NamespaceAutoProvision). All plugins see this
// create, too.
func (s *Server) createNamespace(ctx context.Context, name string) error {
	rq := &engine.Request{Resource: s.registry.Builtin().Find("", "v1", "namespaces"), FieldManager: "kube-apiserver",
		User: access.User{Name: "system:apiserver", Groups: []string{access.Masters, access.Authenticated}}}
	body := object.Fields("metadata", object.Fields("name", object.StringOf(name)))
	_, err := s.engine.Create(ctx, rq, object.Parsed{Value: body})
	return err
}

// namespaceLabel returns the value of a label of a namespace, as of the newest revision.
func (s *Server) namespaceLabel(ctx context.Context, namespace, label string) (string, error) {
	v, _, err := s.store.Live(ctx, store.Key{Resource: engine.Namespaces, Name: namespace}, true)
	if err != nil {
		return "", err
	}
	if v == nil {
		return "", apierr.NewNotFound(apierr.Type{Name: "namespaces"}, namespace)
	}
	value, _ := engine.Labels{Of: v.Sidecar}.Lookup(label)
	return value, nil
}
