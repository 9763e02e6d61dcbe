package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// bench is an engine with the built-in types and a namespace "gone".
type bench struct {
	*testing.T
	*engine.Engine
	registry *engine.Registry
	mu       sync.Mutex
	between  func() // runs once, in the next write, between its read and its commit
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, registry: engine.NewRegistry(builtin.Resources(builtin.Config{EventTTL: time.Hour}))}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(b.registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b.Engine = engine.New(engine.Config{Store: s, Registry: b.registry, Now: func() time.Time {
		b.mu.Lock()
		f := b.between
		b.between = nil
		b.mu.Unlock()
		if f != nil {
			f()
		}
		return time.Now()
	}})
	b.create("namespaces", "", `{"metadata":{"name":"gone"}}`)
	return b
}

func (b *bench) request(resource, namespace, name string) *engine.Request {
	return &engine.Request{Resource: b.registry.Now().Find("", "v1", resource), Namespace: namespace, Name: name}
}

func (b *bench) create(resource, namespace, body string) {
	b.Helper()
	parsed, err := object.ParseJSON([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.Create(b.Context(), b.request(resource, namespace, ""), parsed); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) patch(rq *engine.Request, patch string) {
	b.Helper()
	if _, err := b.Patch(b.Context(), rq, engine.Patch{Type: engine.MergePatch, Body: []byte(patch)}); err != nil {
		b.Error(err)
	}
}

func (b *bench) delete(resource, namespace, name string) {
	b.Helper()
	if _, err := b.Delete(b.Context(), b.request(resource, namespace, name), engine.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) there(resource, namespace, name string) (object.Value, bool) {
	b.Helper()
	got, err := b.Get(b.Context(), b.request(resource, namespace, name), "")
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, false
	}
	if err != nil {
		b.Fatal(err)
	}
	parsed, err := object.ParseJSON(got.Object.Data)
	if err != nil {
		b.Fatal(err)
	}
	return parsed.Value, true
}

func (b *bench) controller() *Namespaces {
	return &Namespaces{Engine: b.Engine, Registry: b.registry, Logger: slog.New(slog.DiscardHandler)}
}

// start runs the controller until the test ends.
func (b *bench) start() (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.controller().Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	b.Cleanup(stop)
	return stop
}

func (b *bench) eventually(what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("never: %s", what)
		}
	}
}

func (b *bench) gone() bool { _, ok := b.there("namespaces", "", "gone"); return !ok }

const pod = `{"metadata":{"name":%q},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`

// SPEC: DEL-5, URI-5
func TestNamespaceIsEmptied(t *testing.T) {
	b := newBench(t)
	b.create("namespaces", "", `{"metadata":{"name":"gone2"}}`)
	for i := range 1000 {
		b.create("configmaps", "gone", fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
	}
	b.create("configmaps", "gone2", `{"metadata":{"name":"stays"}}`)
	b.create("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
	b.create("pods", "gone", fmt.Sprintf(pod, "graceful"))
	b.delete("pods", "gone", "graceful") // waits for a kubelet that is not there
	stop := b.start()
	b.delete("namespaces", "", "gone")
	b.eventually("all but the held object is gone", func() bool {
		list, err := b.List(t.Context(), b.request("configmaps", "gone", ""), engine.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range list.Items {
			n++
		}
		_, pod := b.there("pods", "gone", "graceful")
		return n == 1 && !pod
	})
	if b.gone() {
		t.Fatal("the namespace went before what is in it")
	}
	stop() // in the middle
	b.patch(b.request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
	b.start()
	b.eventually("the namespace is gone", b.gone)
	if _, ok := b.there("configmaps", "gone2", "stays"); !ok {
		t.Error("an object of another namespace is gone")
	}
}

// Finalizers of others, in spec or in metadata, keep an empty namespace until they go.
// SPEC: DEL-5
func TestNamespaceWithFinalizersOfOthers(t *testing.T) {
	b := newBench(t)
	b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/meta"]}}`)
	finalize := b.request("namespaces", "", "gone")
	finalize.Subresource = finalize.Resource.Subresource("finalize")
	live, _ := b.there("namespaces", "", "gone")
	if _, err := b.Update(t.Context(), finalize, object.Parsed{Value: live.WithAt(object.Strings("kubernetes", "a.b/spec"), "spec", "finalizers")}); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.delete("namespaces", "", "gone")
	b.eventually("only the other one is left", func() bool {
		live, _ = b.there("namespaces", "", "gone")
		items := live.At("spec", "finalizers").Items()
		return len(items) == 1 && items[0].Str() == "a.b/spec"
	})
	if _, err := b.Update(t.Context(), finalize, object.Parsed{Value: live.WithoutAt("spec", "finalizers")}); err != nil {
		t.Fatal(err)
	}
	// What the running controller does about that, if anything, has been done when this one has.
	if _, err := b.controller().empty(t.Context(), b.registry.Now().Find("", "v1", "namespaces"), "gone"); err != nil {
		t.Fatal(err)
	}
	if b.gone() {
		t.Fatal("metadata.finalizers meant nothing")
	}
	b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":null}}`)
	b.eventually("the namespace is gone", b.gone)
}

// The controller writes the whole namespace back: what others have changed meanwhile must not be lost.
// SPEC: WRITE-1, DEL-5
func TestFinalizeLosesNoUpdate(t *testing.T) {
	b := newBench(t)
	b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/c"]}}`)
	b.delete("namespaces", "", "gone")
	b.between = func() { b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"labels":{"mine":"stays"}}}`) }
	c := b.controller()
	namespaces := b.registry.Now().Find("", "v1", "namespaces")
	for range 2 {
		if _, err := c.empty(t.Context(), namespaces, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	live, _ := b.there("namespaces", "", "gone")
	if live.At("metadata", "labels", "mine").Str() != "stays" || live.At("spec", "finalizers").Len() != 0 {
		t.Errorf("left is %s", object.AppendJSON(nil, live))
	}
}

// What waits for finalizers is not deleted again and again.
// SPEC: DEL-1
func TestWaitingCostsLittle(t *testing.T) {
	b := newBench(t)
	b.create("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
	b.delete("namespaces", "", "gone")
	c, namespaces := b.controller(), b.registry.Now().Find("", "v1", "namespaces")
	if done, err := c.empty(t.Context(), namespaces, "gone"); done || err != nil {
		t.Fatal(done, err)
	}
	b.between = func() { t.Error("it was written to again") }
	if done, err := c.empty(t.Context(), namespaces, "gone"); done || err != nil {
		t.Fatal(done, err)
	}
}

// SPEC: DEL-5
func TestAgenda(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := agenda{}
	if _, any := a.next(); any || a.due(now) != nil {
		t.Error("something is due on an empty agenda")
	}
	a.changed("a", now)
	if got := a.due(now); !slices.Equal(got, []string{"a"}) {
		t.Errorf("due are %v", got)
	}
	broken := errors.New("broken")
	if !a.tried("a", false, broken, now) || a.tried("a", false, broken, now) {
		t.Error("an error is told of once")
	}
	a.changed("b", now) // somebody else's change is no reason to try again
	if got := a.due(now); !slices.Equal(got, []string{"b"}) {
		t.Errorf("due are %v", got)
	}
	a.tried("b", true, nil, now)
	if at, _ := a.next(); !at.Equal(now.Add(retryAfter)) {
		t.Errorf("next is %v", at)
	}
	a.changed("a", now.Add(time.Millisecond))
	if at, _ := a.next(); !at.Equal(now.Add(restAfter)) {
		t.Errorf("next is %v, after too short a rest", at)
	}
	a.changed("a", now.Add(restAfter+1))
	if at, _ := a.next(); !at.Equal(now.Add(restAfter + 1)) {
		t.Errorf("next is %v", at)
	}
}
