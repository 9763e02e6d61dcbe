package garbage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/controller/controllertest"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/scenario"
	"plinth/internal/store"
	"plinth/object"
)

// garbageBench is a bench with a garbage collector, and objects that are called by their names: "a" and "n/a" are
// ConfigMaps in the namespaces "default" and "n", "/a" is a ClusterRole.
type garbageBench struct {
	*controllertest.Bench
	uids    map[string]string
	running *collector
	stop    func()
	late    func(task) bool // the tasks that begin late; nil for none
	refuse  func(task) bool // the tasks that fail; nil for none
	printed strings.Builder
}

func newGarbageBench(t *testing.T) *garbageBench {
	t.Helper()
	return garbageBenchOn(controllertest.New(t))
}

func garbageBenchOn(b *controllertest.Bench) *garbageBench {
	b.Helper()
	y := &garbageBench{Bench: b, uids: map[string]string{}}
	for _, name := range []string{"default", "n"} {
		y.Make("namespaces", "", `{"metadata":{"name":"`+name+`"}}`)
	}
	return y
}

// collect starts the collector.
func (y *garbageBench) collect() {
	y.Helper()
	ctx, cancel := context.WithCancel(y.Context())
	g := &Controller{Engine: y.Engine, Registry: y.Registry, Logger: slog.New(slog.DiscardHandler)}
	group := steps.NewPool(64).Group(ctx, 64)
	c := g.collector(group)
	do := c.work.Do
	c.work.Do = func(ctx context.Context, t task, n notes) error {
		if y.late != nil && y.late(t) {
			time.Sleep(20 * time.Millisecond)
		}
		if y.refuse != nil && y.refuse(t) {
			return errors.New("refused")
		}
		return do(ctx, t, n)
	}
	c.start()
	y.running, y.stop = c, sync.OnceFunc(func() { cancel(); group.Close() })
	y.Cleanup(y.stop)
}

// wait waits until the collector is idle.
func (y *garbageBench) wait() {
	y.Helper()
	idle := func() bool {
		list, err := y.List(y.Context(), y.of("a"), engine.ListOptions{})
		if err != nil {
			y.Fatal(err)
		}
		if y.running.followed.Load() < list.Revision {
			return false
		}
		return y.running.work.Len() == 0
	}
	for range 2 { // work that ended the first time may have caused an event
		y.Eventually("the collector is done", idle)
	}
}

// of returns a request for an object.
func (y *garbageBench) of(name string) *engine.Request {
	namespace, base, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return &engine.Request{Resource: y.Registry.Now().Find("", "v1", "configmaps"), Namespace: "default", Name: name}
	case namespace == "":
		return &engine.Request{Resource: y.Registry.Now().Find("rbac.authorization.k8s.io", "v1", "clusterroles"), Name: base}
	}
	return &engine.Request{Resource: y.Registry.Now().Find("", "v1", "configmaps"), Namespace: namespace, Name: base}
}

// reference returns an entry of ownerReferences: "a" names an owner, "a!" one whose deletion it blocks, "a?" one with a
// wrong name, "a@" one with a UID that no object has, and "-" one of a type that is not served.
func (y *garbageBench) reference(owner string) string {
	if owner == "-" {
		return `{"apiVersion":"none.example.com/v1","kind":"None","name":"none","uid":"none"}`
	}
	name, blocks := strings.CutSuffix(owner, "!")
	name, renamed := strings.CutSuffix(name, "?")
	name, other := strings.CutSuffix(name, "@")
	rq := y.of(name)
	uid := y.uids[name]
	if uid == "" || other {
		uid = "uid of another " + name
	}
	if renamed {
		rq.Name += "-not"
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%v}`,
		rq.Resource.APIVersion(), rq.Resource.Kind, rq.Name, uid, blocks)
}

func finalizersOf(o *engine.Object) (names []string) {
	head, _ := engine.HeadOf(o)
	for _, f := range head.At("metadata", "finalizers").Items() {
		names = append(names, f.Str())
	}
	return names
}

func (y *garbageBench) references(owners []string) string {
	var refs []string
	for _, owner := range owners {
		refs = append(refs, y.reference(owner))
	}
	return `"ownerReferences":[` + strings.Join(refs, ",") + `]`
}

// steps plays steps.
func (y *garbageBench) steps(lines ...string) {
	y.Helper()
	for _, line := range lines {
		y.step(line)
	}
}

// step plays one step:
//
//	make NAME [OWNER…]     a new object
//	hold NAME [OWNER…]     a new object with the finalizer a.b/c
//	let NAME               remove that finalizer
//	own NAME [OWNER…]      replace the owners of an object
//	mark NAME FINALIZER    set its finalizers to this one
//	delete NAME POLICY
//	collect                start the collector
//	wait                   wait until the collector has nothing to do
//	kill                   stop the collector
//	left                   wait, and print what is left (see left)
//	events                 print the Events
func (y *garbageBench) step(line string) {
	y.Helper()
	words := strings.Fields(line)
	verb, words := words[0], words[1:]
	switch verb {
	case "make", "hold":
		rq := y.of(words[0])
		meta := `"name":"` + rq.Name + `",` + y.references(words[1:])
		if verb == "hold" {
			meta += `,"finalizers":["a.b/c"]`
		}
		rq.Name = ""
		parsed, err := object.ParseJSON([]byte(`{"metadata":{` + meta + `}}`))
		if err != nil {
			y.Fatal(err)
		}
		made, err := y.Create(y.Context(), rq, parsed)
		if err != nil {
			y.Fatal(line, err)
		}
		y.uids[words[0]] = made.Object.Sidecar.UID
	case "let":
		live, err := y.Get(y.Context(), y.of(words[0]), "")
		if err != nil {
			y.Fatal(err)
		}
		left := slices.DeleteFunc(finalizersOf(live.Object), func(f string) bool { return f == "a.b/c" })
		y.Change(y.of(words[0]), `{"metadata":{"finalizers":`+string(object.AppendJSON(nil, object.Strings(left...)))+`}}`)
	case "mark":
		y.Change(y.of(words[0]), fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, words[1]))
	case "own":
		y.Change(y.of(words[0]), `{"metadata":{`+y.references(words[1:])+`}}`)
	case "delete":
		if _, err := y.Delete(y.Context(), y.of(words[0]), engine.DeleteOptions{PropagationPolicy: words[1]}); err != nil {
			y.Fatal(line, err)
		}
	case "collect":
		y.collect()
	case "kill":
		y.stop()
	case "wait":
		y.wait()
	case "left":
		y.wait()
		fmt.Fprintln(&y.printed, cmp.Or(strings.Join(y.left(), " "), "nothing"))
	case "events":
		y.events()
	default:
		y.Fatalf("there is no %s", verb)
	}
}

// left describes all objects that are left: NAME, "+" if it is being deleted, its owners in brackets and its
// finalizers in braces.
func (y *garbageBench) left() []string {
	y.Helper()
	var left []string
	names := map[string]string{}
	for name, uid := range y.uids {
		names[uid] = name
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range y.uids {
			if !yield(name) {
				return
			}
		}
	}) {
		got, err := y.Get(y.Context(), y.of(name), "")
		if apierr.Is(err, apierr.NotFound) {
			continue
		}
		if err != nil {
			y.Fatal(err)
		}
		head, err := engine.HeadOf(got.Object)
		if err != nil {
			y.Fatal(err)
		}
		text := name
		if got.Object.Sidecar.Deleting {
			text += "+"
		}
		var owners []string
		for _, ref := range references(head) {
			owner := names[ref.uid]
			if owner == "" {
				owner = ref.name
			}
			if ref.blocks {
				owner += "!"
			}
			owners = append(owners, owner)
		}
		if len(owners) > 0 {
			text += "[" + strings.Join(owners, ",") + "]"
		}
		if f := finalizersOf(got.Object); len(f) > 0 {
			text += "{" + strings.Join(f, ",") + "}"
		}
		left = append(left, text)
	}
	return left
}

// What is left does not depend on which worker is first.
//
// SPEC: DEL-2, DEL-5
func TestGarbage(t *testing.T) {
	ways := map[string]scenario.Play{}
	for name, late := range map[string]func(task) bool{
		"as they come":     nil,
		"owners first":     func(t task) bool { return t.what == examine },
		"dependents first": func(t task) bool { return t.what == release },
		"c late":           func(t task) bool { return strings.HasSuffix(t.key.Name, "c") },
		"d late":           func(t task) bool { return strings.HasSuffix(t.key.Name, "d") },
	} {
		ways[name] = func(t *testing.T, steps []string) (printed string) {
			synctest.Test(t, func(t *testing.T) {
				y := newGarbageBench(t)
				y.late = late
				y.steps(steps...)
				printed = y.printed.String()
			})
			return printed
		}
	}
	scenario.Variants(t, "testdata/garbage.txt", ways)
}

// events prints the Events of the core group, without UIDs.
func (y *garbageBench) events() {
	y.Helper()
	list, err := y.List(y.Context(), y.Request("events", "", ""), engine.ListOptions{})
	if err != nil {
		y.Fatal(err)
	}
	var lines []string
	for item := range list.Items {
		event, err := engine.ObjectOf(item)
		if err != nil {
			y.Fatal(err)
		}
		about, message := event.At("involvedObject"), event.At("message").Str()
		for name, uid := range y.uids {
			message = strings.ReplaceAll(message, uid, "<"+name+">")
		}
		lines = append(lines, fmt.Sprintf("%s %s %s/%s: %s\n", event.At("metadata", "namespace").Str(),
			event.At("reason").Str(), about.At("kind").Str(), about.At("name").Str(), message))
	}
	slices.Sort(lines)
	y.printed.WriteString(strings.Join(lines, ""))
}

// counted is a writer that counts the look-ups of single objects: a store asks a writer that it does not know whether
// each of them is current. Lists ask with the zero key.
type counted struct {
	lookups atomic.Int64
}

func (*counted) Atomic(_, _ store.Key) bool { return true }

func (c *counted) Fresh(ctx context.Context, k store.Key, sure bool) (bool, error) {
	if k != (store.Key{}) {
		c.lookups.Add(1)
	}
	return true, nil
}

// An object with thousands of references to owners that do not exist is not looked for in every namespace as often.
//
// SPEC: DEL-5
func TestManyDanglingReferences(t *testing.T) {
	const refs, namespaces = 5000, 50
	writer := &counted{}
	y := garbageBenchOn(controllertest.On(t, func(s *store.Store) { s.Others = writer }))
	for i := range namespaces {
		y.Make("namespaces", "", fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i))
	}
	owners := make([]string, refs)
	for i := range owners {
		owners[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"o%d","uid":"u%d"}`, i, i)
	}
	y.collect()
	y.wait()
	before := writer.lookups.Load()
	y.Make("configmaps", "default", `{"metadata":{"name":"a","ownerReferences":[`+strings.Join(owners, ",")+`]}}`)
	y.wait()
	if _, err := y.Get(t.Context(), y.of("a"), ""); !apierr.Is(err, apierr.NotFound) {
		t.Errorf("the object is left: %v", err)
	}
	// Each reference is looked up twice in the object's namespace: when the change is read, and when it is examined.
	if n := writer.lookups.Load() - before; n > 2*refs+maxReported*(namespaces+2)+100 {
		t.Errorf("%d look-ups for %d references and %d namespaces", n, refs, namespaces+2)
	}
}

// The deletion of an object is retried after a failure, and does not delay others.
//
// SPEC: DEL-5
func TestGarbageIsTriedAgain(t *testing.T) {
	y := newGarbageBench(t)
	y.steps("make a")
	for i := range 100 {
		y.steps(fmt.Sprintf("make b%d a", i))
	}
	var refused atomic.Int64
	y.refuse = func(t task) bool { return strings.HasSuffix(t.key.Name, "/b7") && refused.Add(1) <= 5 }
	y.collect()
	y.wait()
	y.steps("delete a Background")
	y.wait()
	if left := y.left(); len(left) > 0 || refused.Load() <= 5 {
		t.Errorf("left %v after %d attempts", left, refused.Load())
	}
}

// A dependent that blocks its owner is remembered, and another one is searched only when it no longer blocks: searching
// all of them each time would take time quadratic in their number.
//
// SPEC: DEL-5
func TestBlockerIsRemembered(t *testing.T) {
	y := newGarbageBench(t)
	y.steps("make a", "hold b a!", "hold c a!", "collect", "delete a Foreground", "wait")
	blocker := func(set string) string {
		y.running.mu.Lock()
		defer y.running.mu.Unlock()
		w := y.running.waiting[y.uids["a"]]
		if set != "" {
			rq := y.of(set)
			w.blocker = rq.Resource.Key(rq.Namespace, rq.Name)
		}
		return w.blocker.Name
	}
	if got := blocker(""); got != "default/c" { // the last one
		t.Errorf("it is blocked by %s", got)
	}
	rq := y.of("a")
	o, err := y.Stored(t.Context(), rq.Resource.Key(rq.Namespace, rq.Name))
	if err != nil {
		t.Fatal(err)
	}
	blocker("b")
	of, err := y.running.taskObject(rq.Resource, o)
	if err != nil {
		t.Fatal(err)
	}
	if blocked := of.blocked(t.Context()); !blocked || blocker("") != "default/b" {
		t.Errorf("it is blocked: %v, by %s", blocked, blocker(""))
	}
	y.steps("let b")
	y.wait()
	if got := blocker(""); got != "default/c" {
		t.Errorf("it is blocked by %s in the end", got)
	}
}

// SPEC: DEL-5
func TestGarbageOfManyDependents(t *testing.T) {
	const n = 2000
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		y := newGarbageBench(t)
		y.steps("make a")
		for i := range n {
			y.steps(fmt.Sprintf("make b%d a!", i))
		}
		y.collect()
		began := time.Now()
		y.steps("delete a " + policy)
		y.wait()
		t.Logf("%s: %v", policy, time.Since(began))
		left := y.left()
		if policy == "Orphan" {
			if len(left) != n || slices.ContainsFunc(left, func(o string) bool { return strings.Contains(o, "[") }) {
				t.Errorf("%d left, of them %s", len(left), left[0])
			}
		} else if len(left) > 0 {
			t.Errorf("%s: %d left", policy, len(left))
		}
	}
}
