// Package controllertest has what the tests of controllers run on: an engine without a server.
package controllertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"plinth/internal/admission"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// Bench is an engine with the built-in types and a namespace "gone".
type Bench struct {
	*testing.T
	*engine.Engine
	Store    *store.Store
	Registry *engine.Registry
	mu       sync.Mutex
	Between  func() // runs once, in the next write, between its read and its commit
}

// New makes a bench.
func New(t *testing.T) *Bench {
	t.Helper()
	return On(t, func(*store.Store) {})
}

// On is New with a store that change has changed.
func On(t *testing.T, change func(*store.Store)) *Bench {
	t.Helper()
	return Of(t, builtin.Config{EventTTL: time.Hour}, change)
}

// Of is On with these types.
func Of(t *testing.T, types builtin.Config, change func(*store.Store)) *Bench {
	t.Helper()
	b := &Bench{T: t, Registry: engine.NewRegistry(builtin.Resources(types))}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(b.Registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	change(s)
	b.Store = s
	plugins, err := admission.New(admission.Config{
		Selection: admission.Selection{Only: []string{"NamespaceLifecycle"}}, Store: s, Registry: b.Registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	config := engine.Config{Store: s, Registry: b.Registry, Admission: plugins.Admission}
	config.Now = func() time.Time {
		b.mu.Lock()
		f := b.Between
		b.Between = nil
		b.mu.Unlock()
		if f != nil {
			f()
		}
		return time.Now()
	}
	b.Engine = engine.New(config)
	b.Make("namespaces", "", `{"metadata":{"name":"gone"}}`)
	return b
}

// Request is a request for an object of the core group.
func (b *Bench) Request(resource, namespace, name string) *engine.Request {
	return &engine.Request{Resource: b.Registry.Now().Find("", "v1", resource), Namespace: namespace, Name: name}
}

// Make creates an object.
func (b *Bench) Make(resource, namespace, body string) {
	b.Helper()
	parsed, err := object.ParseJSON([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.Create(b.Context(), b.Request(resource, namespace, ""), parsed); err != nil {
		b.Fatal(err)
	}
}

// Change patches an object with a merge patch.
func (b *Bench) Change(rq *engine.Request, patch string) {
	b.Helper()
	if _, err := b.Patch(b.Context(), rq, engine.Patch{Type: engine.MergePatch, Body: []byte(patch)}); err != nil {
		b.Error(err)
	}
}

// Remove deletes an object.
func (b *Bench) Remove(resource, namespace, name string) {
	b.Helper()
	if _, err := b.Delete(b.Context(), b.Request(resource, namespace, name), engine.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// Read returns an object, and whether it exists.
func (b *Bench) Read(resource, namespace, name string) (object.Value, bool) {
	b.Helper()
	got, err := b.Get(b.Context(), b.Request(resource, namespace, name), "")
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, false
	}
	if err != nil {
		b.Fatal(err)
	}
	parsed, err := object.ParseJSON(got.Object.Data())
	if err != nil {
		b.Fatal(err)
	}
	return parsed.Value, true
}

// Eventually waits until something is so.
func (b *Bench) Eventually(what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("never: %s", what)
		}
	}
}

// Run runs the loops of a controller until ctx ends.
func Run(ctx context.Context, start func(*steps.Group)) {
	const most = 64
	steps.NewPool(most).Run(ctx, most, start)
}
