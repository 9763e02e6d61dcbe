package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
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
	c := g.collector(ctx)
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
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(ctx)
	}()
	y.running, y.stop = c, sync.OnceFunc(func() { cancel(); <-ended })
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

// line executes one step of a scenario:
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
func (y *garbageBench) line(line string) {
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

// scenarios are steps, and the objects that are left after them (see left).
var scenarios = []struct{ name, scenario, left string }{
	{"background", "make a; make b a; make c b; make d; collect; delete a Background", "d"},
	{"what came before the collector", "make a; make b a; make c b; make d; delete a Background; collect", "d"},
	{"foreground", "make a; make b a!; make c b!; collect; delete a Foreground", ""},
	{"foreground, begun before the collector", "make a; make b a!; make c b!; delete a Foreground; collect", ""},
	{"orphans", "make a; make b a!; make c a b; collect; delete a Orphan", "b c[b]"},
	{"orphans, begun before the collector", "make a; make b a!; make c a b; delete a Orphan; collect", "b c[b]"},
	{"another owner", "make a; make x; make b a x; collect; delete a Background", "b[x] x"},
	{"another owner, foreground", "make a; make x; make b a! x!; collect; delete a Foreground", "b[x!] x"},
	{"both owners go", "make a; make x; make b a x; collect; delete a Background; delete x Background", ""},
	{"a blocking dependent that is held", "make a; hold b a!; collect; delete a Foreground",
		"a+{foregroundDeletion} b+[a!]{a.b/c}"},
	{"and let go", "make a; hold b a!; collect; delete a Foreground; wait; let b", ""},
	{"one that is held and does not block", "make a; hold b a; collect; delete a Foreground", "b+[a]{a.b/c}"},
	{"a held one stops blocking", "make a; hold b a!; collect; delete a Foreground; wait; own b a", "b+[a]{a.b/c}"},
	{"an owner that is held itself", "hold a; make b a; collect; delete a Background", "a+{a.b/c} b[a]"},
	{"and in the foreground", "hold a; make b a!; collect; delete a Foreground", "a+{a.b/c}"},
	{"never was there", "collect; make b a", ""},
	{"never was there, but another one", "make x; collect; make b a x", "b[x] x"},
	{"not any more", "make a; collect; delete a Background; wait; make b a", ""},
	{"by another name", "make a; collect; make b a?", "a"},
	{"by another UID", "make a; make b a@; collect", "a"},
	{"another UID later", "make a; collect; make b; own b a@", "a"},
	{"made again", "make a; make b a; delete a Background; make a; collect", "a"},
	{"no owners any more", "make a; make b a; collect; own b; delete a Background", "b"},
	{"in another namespace", "make n/a; collect; make b n/a", "n/a"},
	{"of no namespace", "make /a; make b /a; make n/b /a; collect; delete /a Background", ""},
	{"an owner in a namespace for one in none", "make a; make /b a; collect; delete a Background", "/b[a]"},
	{"of a type that is not served", "make b -; collect", "b[none]"},
	{"of a type that is not served, beside one that is gone", "collect; make b - a", "b[none,a]"},
	{"of a type that is not served, in the foreground", "make a; make b - a!; collect; delete a Foreground",
		"a+{foregroundDeletion} b[none,a!]"},
	{"two", "make a; make b a; own a b; collect; delete a Background", ""},
	{"two that block", "make a; make b a!; own a b!; collect; delete a Foreground", ""},
	{"three that block", "make a; make b a!; make c b!; own a c!; collect; delete a Foreground", ""},
	{"four of which two are held",
		"make a; hold b a!; make c b!; hold d c!; own a d!; collect; delete a Foreground; wait; let b; wait; let d", ""},
	{"a held owner does not wait for one that does not block", "hold a; make b a!; make c a; collect; delete a Foreground",
		"a+{a.b/c}"},
	{"nor in the middle", "hold a; make b a!; hold c b; make d c; collect; delete a Foreground", "a+{a.b/c} c+[b]{a.b/c}"},
	{"its own", "make a; own a a; collect; delete a Background", ""},
	{"a cycle that nobody holds", "make a; make b a; own a b; collect", "a[b] b[a]"},
	{"a cycle of which one is held by others", "hold a; make b a!; own a b!; collect; delete a Foreground",
		"a+[b!]{a.b/c} b[a]"},
	{"and it goes with that one", "hold a; make b a!; own a b!; collect; delete a Foreground; wait; let a", ""},
	{"a diamond", "make a; make b a!; make c a!; make d b! c!; collect; delete a Foreground", ""},
	{"a diamond of which one half stays",
		"make a; make x; make b a!; make c a! x!; make d b! c!; collect; delete a Foreground", "c[x!] d[c!] x"},
	{"a dependent comes while it waits", "make a; hold b a!; collect; delete a Foreground; wait; make c a!; wait; let b",
		""},
	{"a change of mind: orphan",
		"make a; hold b a!; make c a; collect; delete a Foreground; wait; make d a; delete a Orphan", "b+{a.b/c} d"},
	{"killed in the middle", "make a; hold b a!; make c b!; collect; delete a Foreground; wait; kill; let b; collect", ""},
	{"garbage that is to orphan its dependents", "make a; make b a; make c b; mark b orphan; collect; delete a Background",
		"c"},
	{"garbage that is to wait for its dependents",
		"make a; make b a; hold c b!; mark b foregroundDeletion; collect; delete a Background",
		"b+[a]{foregroundDeletion} c+[b!]{a.b/c}"},
	{"a dependent with a finalizer for its own", "make a; make b a; make c b; own b a; collect; delete a Background; wait",
		""},
}

// What is left does not depend on which worker is first.
//
// SPEC: DEL-2, DEL-5
func TestGarbage(t *testing.T) {
	orders := []struct {
		name string
		late func(task) bool
	}{
		{"as they come", nil},
		{"owners first", func(t task) bool { return t.what == examine }},
		{"dependents first", func(t task) bool { return t.what == release }},
		{"c late", func(t task) bool { return strings.HasSuffix(t.key.Name, "c") }},
		{"d late", func(t task) bool { return strings.HasSuffix(t.key.Name, "d") }},
	}
	for _, scenario := range scenarios {
		for _, order := range orders {
			t.Run(scenario.name+"/"+order.name, func(t *testing.T) {
				t.Parallel()
				y := newGarbageBench(t)
				y.late = order.late
				for line := range strings.SplitSeq(scenario.scenario, ";") {
					y.line(strings.TrimSpace(line))
				}
				y.wait()
				if left := strings.Join(y.left(), " "); left != scenario.left {
					t.Errorf("%s\nleft %s\nwant %s", scenario.scenario, left, scenario.left)
				}
			})
		}
	}
}

// A reference to an owner in another namespace is reported by an Event.
//
// SPEC: DEL-5
func TestGarbageReportsNamespaces(t *testing.T) {
	y := newGarbageBench(t)
	for line := range strings.SplitSeq("make n/a; make a; collect; make b n/a a; make /c n/a; make d a@", ";") {
		y.line(strings.TrimSpace(line))
	}
	y.wait()
	list, err := y.List(t.Context(), y.Request("events", "", ""), engine.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for item := range list.Items {
		event, err := engine.ObjectOf(item)
		if err != nil {
			t.Fatal(err)
		}
		about := event.At("involvedObject")
		told = append(told, fmt.Sprintf("%s %s %s/%s: %s", event.At("metadata", "namespace").Str(), event.At("reason").Str(),
			about.At("kind").Str(), about.At("name").Str(), event.At("message").Str()))
	}
	slices.Sort(told)
	want := []string{
		fmt.Sprintf(
			`default OwnerRefInvalidNamespace ClusterRole/c: ownerRef [v1/ConfigMap, namespace: , name: a, uid: %s] does not exist in namespace ""`, y.uids["n/a"]),
		fmt.Sprintf(
			`default OwnerRefInvalidNamespace ConfigMap/b: ownerRef [v1/ConfigMap, namespace: default, name: a, uid: %s] does not exist in namespace "default"`, y.uids["n/a"]),
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q\nwant %q", told, want)
	}
	if left := strings.Join(y.left(), " "); left != "/c[n/a] a b[a] n/a" {
		t.Errorf("left %s", left)
	}
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
	y.line("make a")
	for i := range 100 {
		y.line(fmt.Sprintf("make b%d a", i))
	}
	var refused atomic.Int64
	y.refuse = func(t task) bool { return strings.HasSuffix(t.key.Name, "/b7") && refused.Add(1) <= 5 }
	y.collect()
	y.wait()
	y.line("delete a Background")
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
	for line := range strings.SplitSeq("make a; hold b a!; hold c a!; collect; delete a Foreground; wait", ";") {
		y.line(strings.TrimSpace(line))
	}
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
	y.line("let b")
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
		y.line("make a")
		for i := range n {
			y.line(fmt.Sprintf("make b%d a!", i))
		}
		y.collect()
		began := time.Now()
		y.line("delete a " + policy)
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
