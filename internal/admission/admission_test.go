package admission

import (
	"slices"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// newEngine is an engine with the built-in types, a namespace "ns" and the plugins of a selection.
func newEngine(t testing.TB, s Selection) (*engine.Engine, *engine.Registry) {
	t.Helper()
	return newEngineWith(t, Config{Selection: s})
}

// newEngineWith makes an engine whose chain is configured by c, but for its store and types.
func newEngineWith(t testing.TB, c Config) (*engine.Engine, *engine.Registry) {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	c.Store, c.Registry, c.Version = opened, registry, "v1.37.1"
	chain, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Config{Store: opened, Registry: registry, Admission: chain.Admission})
	for _, name := range []string{"ns", "default"} {
		if err := create(t, e, registry, "namespaces", "", `{"metadata":{"name":"`+name+`"}}`); err != nil {
			t.Fatal(err)
		}
	}
	return e, registry
}

func create(t testing.TB, e *engine.Engine, registry *engine.Registry, resource, namespace, body string) error {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	rq := &engine.Request{Resource: registry.Now().Find("", "v1", resource), Namespace: namespace}
	_, err = e.Create(t.Context(), rq, parsed)
	return err
}

// The flags decide which plugins run.
//
// SPEC: AUTH-3, URI-5
func TestSelection(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Selection
		on   bool // NamespaceLifecycle
	}{
		{"by default", Selection{}, true},
		{"disabled", Selection{Disabled: []string{"NamespaceLifecycle"}}, false},
		{"another one is disabled", Selection{Disabled: []string{"CertificateSigning"}}, true},
		{"only others", Selection{Only: []string{"AlwaysAdmit"}}, false},
		{"only this one", Selection{Only: []string{"NamespaceLifecycle"}}, true},
	} {
		e, registry := newEngine(t, c.s)
		err := create(t, e, registry, "configmaps", "nowhere", `{"metadata":{"name":"a"}}`)
		if refused := err != nil && strings.Contains(err.Error(), `namespaces "nowhere" not found`); refused != c.on {
			t.Errorf("%s: a create in a namespace that does not exist: %v", c.name, err)
		}
		rq := &engine.Request{Resource: registry.Now().Find("", "v1", "namespaces"), Name: "default"}
		_, err = e.Delete(t.Context(), rq, engine.DeleteOptions{})
		if refused := err != nil && strings.Contains(err.Error(),
			"this namespace may not be deleted"); refused != c.on {
			t.Errorf("%s: the delete of the namespace default: %v", c.name, err)
		}
		if err := create(t, e, registry, "configmaps", "ns", `{"metadata":{"name":"a"}}`); err != nil {
			t.Errorf("%s: a create in a namespace that exists: %v", c.name, err)
		}
	}
}

// Webhooks, policies and quota are behind all other plugins but AlwaysDeny, and no plugin is listed twice.
//
// SPEC: AUTH-3
func TestOrder(t *testing.T) {
	var names []string
	for i := range plugins {
		if slices.Contains(names, plugins[i].name) {
			t.Errorf("%s is listed twice", plugins[i].name)
		}
		names = append(names, plugins[i].name)
	}
	last := []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionWebhook", "ResourceQuota", "AlwaysDeny"}
	if !slices.Equal(names[len(names)-len(last):], last) {
		t.Errorf("the last plugins are %q, want %q", names[len(names)-len(last):], last)
	}
	for name, known := range map[string]bool{"AlwaysAdmit": true, "PodGroupProtection": true, "Nobody": false} {
		if Known(name) != known {
			t.Errorf("%s is known: %v", name, !known)
		}
	}
}
