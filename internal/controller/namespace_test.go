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
	"plinth/internal/aggregation"
	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// bench is an engine with a namespace "gone", and the controller that empties it.
type bench struct{ *controllertest.Bench }

func newBench(t *testing.T) *bench { return &bench{controllertest.New(t)} }

func newBenchOf(t *testing.T, types builtin.Config) *bench {
	return &bench{controllertest.Of(t, types, func(*store.Store) {})}
}

func (b *bench) controller() *Namespaces {
	return &Namespaces{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler)}
}

// pass makes one pass over the namespace "gone".
func (b *bench) pass() (leftovers, error) {
	b.Helper()
	e := b.controller().emptier()
	live, err := b.Get(b.Context(), b.Request("namespaces", "", "gone"), "")
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
		controllertest.Run(ctx, b.controller().Start)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	b.Cleanup(stop)
	return stop
}

func (b *bench) gone() bool { _, ok := b.Read("namespaces", "", "gone"); return !ok }

const pod = `{"metadata":{"name":%q},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`

// SPEC: DEL-5, URI-5
func TestNamespaceIsEmptied(t *testing.T) {
	b := newBench(t)
	b.Make("namespaces", "", `{"metadata":{"name":"gone2"}}`)
	for i := range 1000 {
		b.Make("configmaps", "gone", fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
	}
	b.Make("configmaps", "gone2", `{"metadata":{"name":"stays"}}`)
	b.Make("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
	b.Make("pods", "gone", fmt.Sprintf(pod, "graceful"))
	b.Remove("pods", "gone", "graceful") // waits for a kubelet that does not exist
	stop := b.start()
	b.Remove("namespaces", "", "gone")
	b.Eventually("all but the held object is gone", func() bool {
		list, err := b.List(t.Context(), b.Request("configmaps", "gone", ""), engine.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range list.Items {
			n++
		}
		_, pod := b.Read("pods", "gone", "graceful")
		return n == 1 && !pod
	})
	if b.gone() {
		t.Fatal("the namespace went before what is in it")
	}
	stop() // in the middle
	b.Change(b.Request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
	b.start()
	b.Eventually("the namespace is gone", b.gone)
	if _, ok := b.Read("configmaps", "gone2", "stays"); !ok {
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
		b.Make("namespaces", "", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		b.Make("configmaps", name, `{"metadata":{"name":"c"}}`)
		b.Remove("namespaces", "", name)
	}
	b.start()
	b.Eventually("the namespaces are gone", func() bool {
		for i := range 300 {
			if _, there := b.Read("namespaces", "", fmt.Sprintf("many-%d", i)); there {
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
	finalize := b.Request("namespaces", "", "gone")
	finalize.Subresource = finalize.Resource.Subresource("finalize")
	setSpec := func(finalizers ...string) {
		t.Helper()
		live, _ := b.Read("namespaces", "", "gone")
		next := live.WithAt(object.Strings(finalizers...), "spec", "finalizers")
		if _, err := b.Update(t.Context(), finalize, object.Parsed{Value: next}); err != nil {
			t.Fatal(err)
		}
	}
	// stays waits until the controller is idle, and expects the namespace with these spec.finalizers.
	stays := func(finalizers ...string) {
		t.Helper()
		b.rest()
		live, ok := b.Read("namespaces", "", "gone")
		if have := live.At("spec", "finalizers"); !ok || !object.Equal(have, object.Strings(finalizers...)) &&
			have.Len()+len(finalizers) > 0 {
			t.Fatalf("the namespace is there: %t, with %s, should be with %q", ok, object.AppendJSON(nil, have), finalizers)
		}
	}
	if inMetadata {
		b.Change(b.Request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/meta"]}}`)
	}
	if inSpec {
		setSpec("kubernetes", "a.b/spec")
	}
	b.start()
	b.Remove("namespaces", "", "gone")
	if inSpec {
		stays("a.b/spec")
		setSpec()
	}
	if inMetadata {
		stays()
		b.Change(b.Request("namespaces", "", "gone"), `{"metadata":{"finalizers":null}}`)
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
	b.Change(b.Request("namespaces", "", "gone"), `{"metadata":{"finalizers":["a.b/c"]}}`)
	b.Remove("namespaces", "", "gone")
	b.Between = func() { b.Change(b.Request("namespaces", "", "gone"), `{"metadata":{"labels":{"mine":"stays"}}}`) }
	for range 2 {
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	live, _ := b.Read("namespaces", "", "gone")
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
		b.Make("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
		b.Remove("namespaces", "", "gone")
		var passes atomic.Int64 // a pass reads the clock for its report
		c := b.controller()
		c.Now = func() time.Time { passes.Add(1); return time.Now() }
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { controllertest.Run(ctx, c.Start) })
		defer run.Wait()
		defer cancel()

		b.rest()
		revision := b.Store.Revision()
		if n := passes.Swap(0); n < 1 || n > 3 {
			t.Fatalf("the namespace was deleted, and %d passes were made", n)
		}
		for range 24 {
			b.rest()
		}
		if n := passes.Load(); n > 0 || b.Store.Revision() != revision {
			t.Errorf("nothing happened for a day, and %d passes made %d changes", n, b.Store.Revision()-revision)
		}
		// It still reacts to changes.
		b.Change(b.Request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
		if b.rest(); !b.gone() {
			t.Error("nothing is left, and the namespace is still there")
		}
	})
}

// condition finds a condition of the namespace "gone"; it has all five, and each has a time.
func (b *bench) condition(name string) (status, reason, message string) {
	b.Helper()
	live, _ := b.Read("namespaces", "", "gone")
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
	b.Eventually(name+": "+message, func() bool {
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
	b.Make("configmaps", "gone", `{"metadata":{"name":"free"}}`)
	b.Make("configmaps", "gone", `{"metadata":{"name":"a","finalizers":["a.b/c","a.b/d"]}}`)
	b.Make("configmaps", "gone", `{"metadata":{"name":"b","finalizers":["a.b/c"]}}`)
	b.Make("secrets", "gone", `{"metadata":{"name":"s","finalizers":["a.b/c"]}}`)
	b.Make("events", "gone", `{"metadata":{"name":"e","finalizers":["a.b/e"]},"involvedObject":{"namespace":"gone"}}`)
	b.Remove("namespaces", "", "gone")
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
	b.Change(b.Request("configmaps", "gone", "a"), `{"metadata":{"finalizers":["a.b/d"]}}`)
	b.Change(b.Request("configmaps", "gone", "b"), `{"metadata":{"finalizers":null}}`)
	b.says("NamespaceFinalizersRemaining",
		"Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances, a.b/d in 1 resource instances, "+
			"a.b/e in 2 resource instances")
	b.Change(b.Request("events", "gone", "e"), `{"metadata":{"finalizers":null}}`)
	b.Change(b.Request("secrets", "gone", "s"), `{"metadata":{"finalizers":null}}`)
	b.says("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
	b.Change(b.Request("configmaps", "gone", "a"), `{"metadata":{"finalizers":null}}`)
	b.Eventually("the namespace is gone", b.gone)
}

// Pods get their grace periods, and all other objects stay until they have ended. The status reports when the grace
// periods are exceeded. SPEC: DEL-5
func TestNamespaceWithPods(t *testing.T) {
	b := newBench(t)
	b.Make("nodes", "", `{"metadata":{"name":"n"}}`)
	b.Make("configmaps", "gone", `{"metadata":{"name":"used"}}`)
	b.Make("pods", "gone", fmt.Sprintf(pod, "running"))
	b.Remove("namespaces", "", "gone")
	stop := b.start()
	b.says("NamespaceContentRemaining", "All content successfully removed") // as in the reference, which counts later
	live, _ := b.Read("pods", "gone", "running")
	if live.At("metadata", "deletionGracePeriodSeconds").Int() != 30 {
		t.Errorf("the Pod is %s", object.AppendJSON(nil, live))
	}
	stop()
	c := b.controller()
	c.Now = func() time.Time { return time.Now().Add(time.Minute) }
	gone, err := b.Get(t.Context(), b.Request("namespaces", "", "gone"), "")
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
	if _, ok := b.Read("configmaps", "gone", "used"); !ok {
		t.Error("what the Pod may use has gone before it")
	}
	b.start()
	b.says("NamespaceDeletionContentFailure", "All content successfully deleted, may be waiting on finalization")
	b.Remove("nodes", "", "n") // no kubelet will ever end it
	b.Eventually("the namespace is gone", b.gone)
}

// What is not known of other API servers is said while Pods are left, too, and their objects stay until the Pods have
// ended. SPEC: DEL-5
func TestNamespaceWithPodsAndOtherServers(t *testing.T) {
	b := newBench(t)
	b.Make("pods", "gone", `{"metadata":{"name":"held","finalizers":["example.com/a"]},
		"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	b.Remove("namespaces", "", "gone")
	gone, err := b.Get(t.Context(), b.Request("namespaces", "", "gone"), "")
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
	b.Make("namespaces", "", `{"metadata":{"name":"other"}}`)
	b.Make("configmaps", "gone", `{"metadata":{"name":"held","finalizers":["a.b/c"]}}`)
	b.Remove("namespaces", "", "gone")
	e := b.controller().emptier()
	var passes atomic.Int64
	empty := e.empty
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) {
		passes.Add(1)
		return empty(ctx, o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { controllertest.Run(ctx, e.start) })
	defer running.Wait()
	defer cancel()
	b.says("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
	for range 3 {
		b.Make("configmaps", "other", `{"metadata":{"generateName":"elsewhere-"}}`)
		time.Sleep(3 * minRest)
	}
	if n := passes.Load(); n != 1 {
		t.Errorf("there were %d passes", n)
	}
	b.Change(b.Request("configmaps", "gone", "held"), `{"metadata":{"labels":{"a":"b"}}}`)
	b.Eventually("another pass", func() bool { return passes.Load() == 2 })
	b.Change(b.Request("configmaps", "gone", "held"), `{"metadata":{"finalizers":null}}`)
	b.Eventually("the namespace is gone", b.gone)
}

// An object that replaces a listed one under the same name is not deleted by the pass.
// SPEC: DEL-2, DEL-5
func TestOnlyWhatWasListedIsDeleted(t *testing.T) {
	b := newBench(t)
	b.Make("configmaps", "gone", `{"metadata":{"name":"a"}}`)
	old, err := b.Get(t.Context(), b.Request("configmaps", "gone", "a"), "")
	if err != nil {
		t.Fatal(err)
	}
	b.Remove("configmaps", "gone", "a")
	b.Make("configmaps", "gone", `{"metadata":{"name":"a"}}`)
	e := b.controller().emptier()
	if err := e.delete(t.Context(), b.Request("configmaps", "", "").Resource, old.Object,
		inBackground(old.Object)); err != nil {
		t.Error(err)
	}
	if _, ok := b.Read("configmaps", "gone", "a"); !ok {
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
