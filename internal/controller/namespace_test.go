package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/admission"
	"plinth/internal/aggregation"
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
	store    *store.Store
	registry *engine.Registry
	mu       sync.Mutex
	between  func() // runs once, in the next write, between its read and its commit
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, func(*store.Store) {})
}

// newBenchOn is newBench with a store that change has changed.
func newBenchOn(t *testing.T, change func(*store.Store)) *bench {
	t.Helper()
	return newBenchOf(t, builtin.Config{EventTTL: time.Hour}, change)
}

// newBenchOf is newBenchOn with these types.
func newBenchOf(t *testing.T, types builtin.Config, change func(*store.Store)) *bench {
	t.Helper()
	b := &bench{T: t, registry: engine.NewRegistry(builtin.Resources(types))}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(b.registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	change(s)
	b.store = s
	plugins, err := admission.New(admission.Config{
		Selection: admission.Selection{Only: []string{"NamespaceLifecycle"}}, Store: s, Registry: b.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	config := engine.Config{Store: s, Registry: b.registry, Admission: plugins.Admission}
	config.Now = func() time.Time {
		b.mu.Lock()
		f := b.between
		b.between = nil
		b.mu.Unlock()
		if f != nil {
			f()
		}
		return time.Now()
	}
	b.Engine = engine.New(config)
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
	parsed, err := object.ParseJSON(got.Object.Data())
	if err != nil {
		b.Fatal(err)
	}
	return parsed.Value, true
}

func (b *bench) controller() *Namespaces {
	return &Namespaces{Engine: b.Engine, Registry: b.registry, Logger: slog.New(slog.DiscardHandler)}
}

// pass makes one pass over the namespace "gone".
func (b *bench) pass() (leftovers, error) {
	b.Helper()
	e := b.controller().emptier()
	live, err := b.Get(b.Context(), b.request("namespaces", "", "gone"), "")
	if err != nil {
		return leftovers{}, err
	}
	return e.empty(b.Context(), live.Object)
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
	b.delete("pods", "gone", "graceful") // waits for a kubelet that does not exist
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

// Many namespaces that are deleted at once are all emptied.
//
// SPEC: DEL-5
func TestManyNamespacesAtOnce(t *testing.T) {
	b := newBench(t)
	for i := range 300 {
		name := fmt.Sprintf("many-%d", i)
		b.create("namespaces", "", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		b.create("configmaps", name, `{"metadata":{"name":"c"}}`)
		b.delete("namespaces", "", name)
	}
	b.start()
	b.eventually("the namespaces are gone", func() bool {
		for i := range 300 {
			if _, there := b.there("namespaces", "", fmt.Sprintf("many-%d", i)); there {
				return false
			}
		}
		return true
	})
}

// Finalizers of other controllers, in spec, in metadata or in both, keep an empty namespace exactly until they are
// removed.
// SPEC: DEL-5
func TestNamespaceWithFinalizersOfOthers(t *testing.T) {
	for _, where := range []string{"spec", "metadata", "spec and metadata"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testFinalizersOfOthers(t, strings.Contains(where, "spec"), strings.Contains(where, "metadata"))
			})
		})
	}
}

func testFinalizersOfOthers(t *testing.T, inSpec, inMetadata bool) {
	b := newBench(t)
	finalize := b.request("namespaces", "", "gone")
	finalize.Subresource = finalize.Resource.Subresource("finalize")
	setSpec := func(finalizers ...string) {
		t.Helper()
		live, _ := b.there("namespaces", "", "gone")
		next := live.WithAt(object.Strings(finalizers...), "spec", "finalizers")
		if _, err := b.Update(t.Context(), finalize, object.Parsed{Value: next}); err != nil {
			t.Fatal(err)
		}
	}
	// stays waits until the controller is idle, and expects the namespace with these spec.finalizers.
	stays := func(finalizers ...string) {
		t.Helper()
		b.rest()
		live, ok := b.there("namespaces", "", "gone")
		if have := live.At("spec", "finalizers"); !ok || !object.Equal(have, object.Strings(finalizers...)) &&
			have.Len()+len(finalizers) > 0 {
			t.Fatalf("the namespace is there: %t, with %s, should be with %q", ok, object.AppendJSON(nil, have), finalizers)
		}
	}
	if inMetadata {
		b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/meta"]}}`)
	}
	if inSpec {
		setSpec("kubernetes", "a.b/spec")
	}
	b.start()
	b.delete("namespaces", "", "gone")
	if inSpec {
		stays("a.b/spec")
		setSpec()
	}
	if inMetadata {
		stays()
		b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":null}}`)
	}
	if b.rest(); !b.gone() {
		t.Fatal("nothing keeps the namespace, and it is still there")
	}
}

// rest lets an hour pass in a bubble of synctest, and returns when all goroutines wait.
func (b *bench) rest() {
	time.Sleep(time.Hour)
	synctest.Wait()
}

// The controller writes the whole namespace back: concurrent changes by other clients must not be lost.
// SPEC: WRITE-1, DEL-5
func TestFinalizeLosesNoUpdate(t *testing.T) {
	b := newBench(t)
	b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/c"]}}`)
	b.delete("namespaces", "", "gone")
	b.between = func() { b.patch(b.request("namespaces", "", "gone"), `{"metadata":{"labels":{"mine":"stays"}}}`) }
	for range 2 {
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	live, _ := b.there("namespaces", "", "gone")
	if live.At("metadata", "labels", "mine").Str() != "stays" || live.At("spec", "finalizers").Len() != 0 {
		t.Errorf("left is %s", object.AppendJSON(nil, live))
	}
}

// Objects that wait for finalizers are not deleted repeatedly, and a controller that waits makes no passes by the
// clock.
// SPEC: DEL-1
func TestWaitingCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
		b.delete("namespaces", "", "gone")
		var passes atomic.Int64 // a pass reads the clock for its report
		c := b.controller()
		c.Now = func() time.Time { passes.Add(1); return time.Now() }
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Run(ctx) })
		defer run.Wait()
		defer cancel()

		b.rest()
		revision := b.store.Revision()
		if n := passes.Swap(0); n < 1 || n > 3 {
			t.Fatalf("the namespace was deleted, and %d passes were made", n)
		}
		for range 24 {
			b.rest()
		}
		if n := passes.Load(); n > 0 || b.store.Revision() != revision {
			t.Errorf("nothing happened for a day, and %d passes made %d changes", n, b.store.Revision()-revision)
		}
		// It still reacts to changes.
		b.patch(b.request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
		if b.rest(); !b.gone() {
			t.Error("nothing is left, and the namespace is still there")
		}
	})
}

// condition finds a condition of the namespace "gone"; it has all five, and each has a time.
func (b *bench) condition(name string) (status, reason, message string) {
	b.Helper()
	live, _ := b.there("namespaces", "", "gone")
	items := live.At("status", "conditions").Items()
	for _, item := range items {
		if item.At("lastTransitionTime").Str() == "" {
			b.Errorf("a condition has no time: %s", object.AppendJSON(nil, item))
		}
		if item.At("type").Str() == name {
			status, reason, message = item.At("status").Str(), item.At("reason").Str(), item.At("message").Str()
		}
	}
	if n := len(items); n != 0 && n != 5 {
		b.Errorf("there are %d conditions", n)
	}
	return status, reason, message
}

func (b *bench) says(name, message string) {
	b.Helper()
	last := ""
	b.eventually(name+": "+message, func() bool {
		_, _, said := b.condition(name)
		if said != last {
			b.Logf("%s: %s", name, said)
			last = said
		}
		return said == message
	})
}

// The status says what is left, and which finalizers keep it. The controller notices that less is left without a change
// of the namespace. SPEC: DEL-5
func TestNamespaceSaysWhatIsLeft(t *testing.T) {
	b := newBench(t)
	b.create("configmaps", "gone", `{"metadata":{"name":"free"}}`)
	b.create("configmaps", "gone", `{"metadata":{"name":"a","finalizers":["a.b/c","a.b/d"]}}`)
	b.create("configmaps", "gone", `{"metadata":{"name":"b","finalizers":["a.b/c"]}}`)
	b.create("secrets", "gone", `{"metadata":{"name":"s","finalizers":["a.b/c"]}}`)
	b.create("events", "gone", `{"metadata":{"name":"e","finalizers":["a.b/e"]},"involvedObject":{"namespace":"gone"}}`)
	b.delete("namespaces", "", "gone")
	b.start()
	b.says("NamespaceContentRemaining",
		"Some resources are remaining: configmaps. has 2 resource instances, events. has 1 resource instances, "+
			"events.events.k8s.io has 1 resource instances, secrets. has 1 resource instances")
	b.says("NamespaceFinalizersRemaining",
		"Some content in the namespace has finalizers remaining: a.b/c in 3 resource instances, a.b/d in 1 resource instances, "+
			"a.b/e in 2 resource instances") // an Event is counted in both of its groups, as by the reference
	if status, reason, _ := b.condition("NamespaceContentRemaining"); status != "True" || reason != "SomeResourcesRemain" {
		t.Error(status, reason)
	}
	if status, reason, _ := b.condition("NamespaceDeletionContentFailure"); status != "False" ||
		reason != "ContentDeleted" {
		t.Error(status, reason)
	}
	b.patch(b.request("configmaps", "gone", "a"), `{"metadata":{"finalizers":["a.b/d"]}}`)
	b.patch(b.request("configmaps", "gone", "b"), `{"metadata":{"finalizers":null}}`)
	b.says("NamespaceFinalizersRemaining",
		"Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances, a.b/d in 1 resource instances, "+
			"a.b/e in 2 resource instances")
	b.patch(b.request("events", "gone", "e"), `{"metadata":{"finalizers":null}}`)
	b.patch(b.request("secrets", "gone", "s"), `{"metadata":{"finalizers":null}}`)
	b.says("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
	b.patch(b.request("configmaps", "gone", "a"), `{"metadata":{"finalizers":null}}`)
	b.eventually("the namespace is gone", b.gone)
}

// Pods get their grace periods, and all other objects stay until they have ended. The status reports when the grace
// periods are exceeded. SPEC: DEL-5
func TestNamespaceWithPods(t *testing.T) {
	b := newBench(t)
	b.create("nodes", "", `{"metadata":{"name":"n"}}`)
	b.create("configmaps", "gone", `{"metadata":{"name":"used"}}`)
	b.create("pods", "gone", fmt.Sprintf(pod, "running"))
	b.delete("namespaces", "", "gone")
	stop := b.start()
	b.says("NamespaceContentRemaining", "All content successfully removed") // as in the reference, which counts later
	live, _ := b.there("pods", "gone", "running")
	if live.At("metadata", "deletionGracePeriodSeconds").Int() != 30 {
		t.Errorf("the Pod is %s", object.AppendJSON(nil, live))
	}
	stop()
	c := b.controller()
	c.Now = func() time.Time { return time.Now().Add(time.Minute) }
	gone, err := b.Get(t.Context(), b.request("namespaces", "", "gone"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.emptier().empty(t.Context(), gone.Object); err == nil {
		t.Error("a Pod that does not end is no error")
	}
	status, reason, message := b.condition("NamespaceDeletionContentFailure")
	if status != "True" || reason != "ContentDeletionFailed" ||
		message != "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: gone for gvr: /v1, Resource=pods" {
		t.Error(status, reason, message)
	}
	if _, ok := b.there("configmaps", "gone", "used"); !ok {
		t.Error("what the Pod may use has gone before it")
	}
	b.start()
	b.says("NamespaceDeletionContentFailure", "All content successfully deleted, may be waiting on finalization")
	b.delete("nodes", "", "n") // no kubelet will ever end it
	b.eventually("the namespace is gone", b.gone)
}

// What is not known of other API servers is said while Pods are left, too, and their objects stay until the Pods have
// ended. SPEC: DEL-5
func TestNamespaceWithPodsAndOtherServers(t *testing.T) {
	b := newBench(t)
	b.create("pods", "gone", `{"metadata":{"name":"held","finalizers":["example.com/a"]},
		"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	b.delete("namespaces", "", "gone")
	gone, err := b.Get(t.Context(), b.request("namespaces", "", "gone"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := b.controller()
	c.StaleAtOthers = func() []string { return []string{"away.example.com/v1"} }
	c.AtOthers = func(context.Context, string, access.User) aggregation.Contents {
		t.Error("other API servers are asked to delete objects while Pods are left")
		return aggregation.Contents{}
	}
	if _, err := c.emptier().empty(t.Context(), gone.Object); err == nil {
		t.Error("that an API server is away is no error")
	}
	status, reason, message := b.condition("NamespaceDeletionDiscoveryFailure")
	if status != "True" || reason != "DiscoveryFailed" || message != "Discovery failed for some groups, 1 failing: "+
		"unable to retrieve the complete list of server APIs: away.example.com/v1: stale GroupVersion discovery: away.example.com/v1" {
		t.Error(status, reason, message)
	}
}

// A namespace that waits has no cost: no pass is made until one of the objects left in it changes.
// SPEC: DEL-5
func TestWaitingNamespacesAreLeftAlone(t *testing.T) {
	b := newBench(t)
	b.create("namespaces", "", `{"metadata":{"name":"other"}}`)
	b.create("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
	b.delete("namespaces", "", "gone")
	e := b.controller().emptier()
	var passes atomic.Int64
	empty := e.empty
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) {
		passes.Add(1)
		return empty(ctx, o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.run(ctx) })
	defer running.Wait()
	defer cancel()
	b.says("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
	for range 3 {
		b.create("configmaps", "other", `{"metadata":{"generateName":"elsewhere-"}}`)
		time.Sleep(3 * minRest)
	}
	if n := passes.Load(); n != 1 {
		t.Errorf("there were %d passes", n)
	}
	b.patch(b.request("configmaps", "gone", "held"), `{"metadata":{"labels":{"a":"b"}}}`)
	b.eventually("another pass", func() bool { return passes.Load() == 2 })
	b.patch(b.request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
	b.eventually("the namespace is gone", b.gone)
}

// An object that replaces a listed one under the same name is not deleted by the pass.
// SPEC: DEL-2, DEL-5
func TestOnlyWhatWasListedIsDeleted(t *testing.T) {
	b := newBench(t)
	b.create("configmaps", "gone", `{"metadata":{"name":"a"}}`)
	old, err := b.Get(t.Context(), b.request("configmaps", "gone", "a"), "")
	if err != nil {
		t.Fatal(err)
	}
	b.delete("configmaps", "gone", "a")
	b.create("configmaps", "gone", `{"metadata":{"name":"a"}}`)
	e := b.controller().emptier()
	if err := e.delete(t.Context(), b.request("configmaps", "", "").Resource, old.Object,
		inBackground(old.Object)); err != nil {
		t.Error(err)
	}
	if _, ok := b.there("configmaps", "gone", "a"); !ok {
		t.Error("it is gone")
	}
}

// The time of a condition is that of the last change of its status.
// SPEC: DEL-5
func TestConditions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	other := object.Fields("type", object.StringOf("Other"), "status", object.StringOf("True"))
	list := amend(object.ListOf(other), conditions(nil, nil, nil, nil), now)
	if list.Len() != 6 || !object.Equal(list.Items()[0], other) {
		t.Fatalf("conditions are %s", object.AppendJSON(nil, list))
	}
	if again := amend(list, conditions(nil, nil, map[string]int{}, nil), now.Add(time.Hour)); !object.Equal(again, list) {
		t.Errorf("the same is said otherwise: %s", object.AppendJSON(nil, again))
	}
	failed := []error{errors.New("b"), errors.New("a")}
	list = amend(list, conditions(nil, failed, map[string]int{"pods.": 2}, nil), now.Add(time.Hour))
	list = amend(list, conditions(nil, nil, map[string]int{"pods.": 1}, nil), now.Add(2*time.Hour))
	want := map[string]string{
		"NamespaceDeletionContentFailure": "False 2026-01-02T05:04:05Z All content successfully deleted, may be waiting on finalization",
		"NamespaceContentRemaining":       "True 2026-01-02T04:04:05Z Some resources are remaining: pods. has 1 resource instances",
		"NamespaceFinalizersRemaining":    "False 2026-01-02T03:04:05Z All content-preserving finalizers finished",
	}
	for _, item := range list.Items() {
		name := item.At("type").Str()
		got := item.At("status").Str() + " " + item.At("lastTransitionTime").Str() + " " + item.At("message").Str()
		if want[name] != "" && got != want[name] {
			t.Errorf("%s is %s", name, got)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("missing are %v", want)
	}
}

// SPEC: DEL-5
func TestRetry(t *testing.T) {
	for failed, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 1000: time.Minute} {
		if got := retry(failed); got != want {
			t.Errorf("after %d failures it waits %s", failed, got)
		}
	}
}
