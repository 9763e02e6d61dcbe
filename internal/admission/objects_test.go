package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// stage is a plugin with a store that a test writes to.
type stage struct {
	store    *store.Store
	registry *engine.Registry
	engine   *engine.Engine
	chain    Plugins
}

// newStage makes a plugin, in a server that serves all types but those of off, "GROUP/RESOURCE".
func newStage(t testing.TB, plugin string, off ...string) *stage {
	t.Helper()
	return newStageOf(t, Config{Selection: Selection{Only: []string{plugin}}}, off...)
}

// newStageOf is newStage with the plugin in the selection of a configuration.
func newStageOf(t testing.TB, c Config, off ...string) *stage {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{
		Serves: func(group, _, resource string, byDefault bool) bool {
			return byDefault && !slices.Contains(off, group+"/"+resource)
		}}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	s := &stage{store: opened, registry: registry}
	c.Store, c.Registry, c.Version = opened, registry, "v1.37.1"
	s.chain, err = New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.engine = engine.New(engine.Config{Store: opened, Registry: registry})
	return s
}

// write stores a text as it is; nil deletes.
func (s *stage) write(t testing.TB, gv, resource, namespace, name string, text []byte) {
	t.Helper()
	parsed, err := schema.ParseGroupVersion(gv)
	if err != nil {
		t.Fatal(err)
	}
	r := s.registry.Now().Find(parsed.Group, parsed.Version, resource)
	change := store.Change{Key: r.Key(namespace, name), Data: text}
	if _, err := s.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
		t.Fatal(err)
	}
}

// put stores an object.
func (s *stage) put(t testing.TB, gv, resource, namespace, text string) {
	t.Helper()
	obj := parsed(t, text)
	obj = obj.WithAt(object.StringOf("uid"), "metadata", "uid")
	obj = obj.WithAt(object.StringOf("2024-01-01T00:00:00Z"), "metadata", "creationTimestamp")
	data := object.AppendObject(nil, obj)
	s.write(t, gv, resource, namespace, obj.At("metadata", "name").Str(), data)
}

func parsed(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p.Value
}

// noted takes annotations for the audit log.
type noted map[string]string

func (n noted) Annotate(key, value string)        { n[key] = value }
func (n noted) AnnotateRequest(key, value string) { n[key] = value }

// admit runs the plugin on a create, or on an update if old is not "". The resource may be one with a subresource,
// "pods/resize". It returns the object as the plugin leaves it.
func (s *stage) admit(t testing.TB, gv, resource, text, old string) (object.Value, *engine.Attributes, noted, error) {
	t.Helper()
	group, err := schema.ParseGroupVersion(gv)
	if err != nil {
		t.Fatal(err)
	}
	obj, before, operation := parsed(t, text), object.Nil, engine.OperationCreate
	if old != "" {
		before, operation = parsed(t, old), engine.OperationUpdate
	}
	notes := noted{}
	meta := obj.At("metadata")
	resource, subresource, _ := strings.Cut(resource, "/")
	r := s.registry.Now().Find(group.Group, group.Version, resource)
	a := s.engine.Attributes(&engine.Request{Resource: r, Subresource: r.Subresource(subresource),
		Namespace: meta.At("namespace").Str(), Name: meta.At("name").Str(), User: access.User{Name: "jane"},
		Annotations: notes}, operation, obj, before)
	if s.chain.Admit != nil {
		err = s.chain.Admit(t.Context(), a)
	}
	if err == nil && s.chain.Validate != nil {
		err = s.chain.Validate(t.Context(), a)
	}
	return a.Object, a, notes, err
}

const podText = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"},"spec":%s}`

// An object that cannot be read is an error, and not one that is absent.
//
// SPEC: AUTH-3
func TestUnreadableObjects(t *testing.T) {
	const (
		claim     = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"p","namespace":"ns"},"spec":{}}`
		elsewhere = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"bad"},"spec":%s}`
		grown     = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns","generation":2},"spec":{
			"nodeName":"bad","resources":{"requests":{"cpu":"2"}}}}`
		slice = `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"s"},"spec":{%s,
			"devices":[{"name":"d","nodeAllocatableResources":{"cpu":{}}}]}}`
	)
	small := fmt.Sprintf(podText, `{"nodeName":"bad","resources":{"requests":{"cpu":"1"}}}`)
	unread := func(key string) string {
		return "Internal error occurred: unable to read the stored object " + key + ": unexpected end of JSON input"
	}
	const refusedPod, refusedSlice = `pods "p" is forbidden: `, `resourceslices.resource.k8s.io "s" is forbidden: `
	for _, c := range []struct {
		plugin, gv, resource, namespace string // of the unreadable object, whose name is bad
		of, text, old                   string // the object of the request, and its resource
		want                            string
	}{
		{"Priority", "scheduling.k8s.io/v1", "priorityclasses", "", "pods", fmt.Sprintf(podText,
			`{"priorityClassName":"bad"}`), "",
			"failed to resolve PriorityClass with name bad: " + unread("scheduling.k8s.io/priorityclasses/bad")},
		{"RuntimeClass", "node.k8s.io/v1", "runtimeclasses", "", "pods", fmt.Sprintf(podText,
			`{"runtimeClassName":"bad"}`), "", unread("node.k8s.io/runtimeclasses/bad")},
		{"NamespaceExists", "v1", "namespaces", "", "configmaps",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"bad"}}`, "",
			unread("/namespaces/bad")},
		{"NamespaceAutoProvision", "v1", "namespaces", "", "configmaps",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"bad"}}`, "",
			unread("/namespaces/bad")},
		{"LimitRanger", "v1", "limitranges", "ns", "pods", fmt.Sprintf(podText, `{}`), "",
			unread("/limitranges/ns/bad")},
		{"LimitRanger", "v1", "limitranges", "ns", "persistentvolumeclaims", claim, "", unread("/limitranges/ns/bad")},
		{"ServiceAccount", "v1", "serviceaccounts", "ns", "pods", fmt.Sprintf(podText, `{"serviceAccountName":"bad"}`), "",
			refusedPod + "error looking up service account ns/bad: " + unread("/serviceaccounts/ns/bad")},
		{"PodTopologyLabels", "v1", "nodes", "", "pods", fmt.Sprintf(podText, `{"nodeName":"bad"}`), "",
			unread("/nodes/bad")},
		{"NodeDeclaredFeatureValidator", "v1", "nodes", "", "pods", grown, small,
			refusedPod + `failed to get node "bad": ` + unread("/nodes/bad")},
		{"NodeDeclaredFeatureValidator", "v1", "nodes", "", "resourceslices", fmt.Sprintf(slice, `"nodeName":"bad"`), "",
			refusedSlice + `failed to get node "bad" for device "d": ` + unread("/nodes/bad")},
		{"NodeDeclaredFeatureValidator", "v1", "nodes", "", "resourceslices", fmt.Sprintf(slice, `"allNodes":true`), "",
			refusedSlice + `failed to list nodes for device "d": ` + unread("/nodes/bad")},
		{"PodResizeValidator", "v1", "nodes", "", "pods/resize", grown, small,
			refusedPod + `failed to get node "bad": ` + unread("/nodes/bad")},
		{"PodNodeSelector", "v1", "namespaces", "", "pods", fmt.Sprintf(elsewhere, `{}`), "",
			"Internal error occurred: " + unread("/namespaces/bad")},
		{"PodTolerationRestriction", "v1", "namespaces", "", "pods", fmt.Sprintf(elsewhere, `{}`), "",
			"Internal error occurred: " + unread("/namespaces/bad")},
		{"PodSecurity", "v1", "namespaces", "", "pods", fmt.Sprintf(elsewhere, `{}`), "",
			`Internal error occurred: failed to lookup namespace "bad" audit: Internal error occurred: failed to ` +
				`lookup namespace "bad": ` + unread("/namespaces/bad")},
	} {
		s := newStageOf(t, Config{Selection: Selection{Only: []string{c.plugin}},
			Features: features.Set{}.With(features.DRANodeAllocatableResources, true)})
		s.write(t, c.gv, c.resource, c.namespace, "bad", []byte("{"))
		gv := "v1"
		if c.of == "resourceslices" {
			gv = "resource.k8s.io/v1"
		}
		_, _, notes, err := s.admit(t, gv, c.of, c.text, c.old)
		said := fmt.Sprint(err)
		for _, note := range notes {
			said += " audit: " + note
		}
		if said != c.want {
			t.Errorf("%s: %s\nwant %s", c.plugin, said, c.want)
		}
	}
}

// Flags can switch types off: then there are no objects of them.
//
// SPEC: AUTH-3
func TestTypesThatAreSwitchedOff(t *testing.T) {
	const claim = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"p","namespace":"ns"},"spec":{}}`
	for _, c := range []struct{ plugin, off, resource, text, want string }{
		{"Priority", "scheduling.k8s.io/priorityclasses", "pods", fmt.Sprintf(podText, `{}`), ""},
		{"Priority", "scheduling.k8s.io/priorityclasses", "pods", fmt.Sprintf(podText, `{"priorityClassName":"a"}`),
			"no PriorityClass with name a was found"},
		{"DefaultStorageClass", "storage.k8s.io/storageclasses", "persistentvolumeclaims", claim, ""},
		{"LimitRanger", "/limitranges", "persistentvolumeclaims", claim, ""},
		{"ServiceAccount", "/serviceaccounts", "pods", fmt.Sprintf(podText, `{}`), "service account ns/default"},
	} {
		s := newStage(t, c.plugin, c.off)
		_, _, _, err := s.admit(t, "v1", c.resource, c.text, "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s without %s: %v, want %s", c.plugin, c.off, err, c.want)
		}
	}
}

// The account default is waited for, since a controller makes it; others are not.
//
// SPEC: AUTH-3
func TestDefaultAccountIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "ServiceAccount")
		for name, want := range map[string]time.Duration{"other": 0, defaultAccount: accountWait} {
			began := time.Now()
			_, _, _, err := s.admit(t, "v1", "pods", fmt.Sprintf(podText, `{"serviceAccountName":"`+name+`"}`), "")
			if took := time.Since(began); err == nil || took != want {
				t.Errorf("%v after %v, want an error after %v", err, took, want)
			}
		}
		go func() {
			time.Sleep(accountWait / 2)
			s.put(t, "v1", "serviceaccounts", "ns", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`)
		}()
		if _, _, _, err := s.admit(t, "v1", "pods", fmt.Sprintf(podText, `{}`), ""); err != nil {
			t.Errorf("the account was made meanwhile: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		kind := kindOf{"", "v1", "serviceaccounts"}
		objects := newObjects(s.store, s.registry)
		if _, err := objects.await(ctx, kind, "elsewhere", "default", accountWait); err == nil {
			t.Error("a request that was given up finds that there is no account")
		}
	})
}

// The default class is that of the moment: objects are marked, unmarked and deleted.
//
// SPEC: AUTH-3
func TestDefaultClassChanges(t *testing.T) {
	s := newStage(t, "Priority")
	class := func(name string, value int, marked bool) {
		s.put(t, "scheduling.k8s.io/v1", "priorityclasses", "", fmt.Sprintf(`{"apiVersion":"scheduling.k8s.io/v1",
			"kind":"PriorityClass","metadata":{"name":%q},"value":%d,"globalDefault":%t}`, name, value, marked))
	}
	check := func(want string) {
		t.Helper()
		obj, _, _, err := s.admit(t, "v1", "pods", fmt.Sprintf(podText, `{}`), "")
		if got := obj.At("spec", "priorityClassName").Str(); err != nil || got != want {
			t.Errorf("the class of a Pod is %q, %v, want %q", got, err, want)
		}
	}
	check("")
	class("m", 5, true)
	check("m")
	class("other", 1, false)
	check("m")
	class("lower", 4, true)
	check("lower")
	class("lower", 4, false)
	check("m")
	for i, name := range strings.Split("zyxwvutsrqpon", "") { // as low as m, in no order
		class(name, 5+i%2, true)
	}
	class("n", 5, true)
	class("l", 5, true)
	check("l")
	s.write(t, "scheduling.k8s.io/v1", "priorityclasses", "", "l", nil)
	check("m")
}

// Of several default classes one counts, whatever the order in which they are seen.
//
// SPEC: AUTH-3
func TestWhichDefaultCounts(t *testing.T) {
	class := func(name, created string, value int) object.Value {
		return parsed(t, fmt.Sprintf(`{"metadata":{"name":%q,"creationTimestamp":%q},"value":%d}`, name, created, value))
	}
	const early, late = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
	for i, c := range []struct {
		first, second  object.Value
		newest, lowest bool // whether the first one counts
	}{
		{class("a", early, 2), class("b", early, 2), true, true},
		{class("b", early, 2), class("a", early, 2), false, false},
		{class("a", early, 2), class("b", late, 1), false, false},
		{class("b", late, 1), class("a", early, 2), true, true},
	} {
		if got := newest(c.first, c.second); got != c.newest {
			t.Errorf("%d: the first one is the newest: %v", i, got)
		}
		if got := lowest(c.first, c.second); got != c.lowest {
			t.Errorf("%d: the first one is the lowest: %v", i, got)
		}
	}
}

// PodSecurity looks at Pods without a controller and one of each controller first, and at no more than so many.
//
// SPEC: AUTH-3
func TestSampleOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		s := newStage(t, "PodSecurity")
		pod := func(name, controller, more string) {
			owners := ""
			if controller != "" {
				owners = fmt.Sprintf(`,"ownerReferences":[{"uid":"owner"},{"uid":%q,"controller":true}]`, controller)
			}
			s.put(t, "v1", "pods", "ns", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,
				"namespace":"ns"%s},"spec":{"containers":[{"name":"c"}]%s}}`, name, owners, more))
		}
		pod("a", "one", "")
		pod("b", "one", "")
		pod("c", "two", "")
		pod("d", "", "")
		pod("e", "", "")
		pod("f", "two", "")
		s.put(t, "v1", "pods", "nt", fmt.Sprintf(podText, `{}`))
		s.write(t, "v1", "pods", "ns", "g", []byte("{"))
		s.put(t, "v1", "pods", "ns", fmt.Sprintf(strings.Replace(podText, `"p"`, `"h"`, 1), `"none"`))
		p := &podSecurity{objects: newObjects(s.store, s.registry)}
		sampled := func() string {
			var names []string
			for _, v := range p.sample("ns") {
				names = append(names, strings.TrimPrefix(v.Key.Name, "ns/"))
			}
			return strings.Join(names, " ")
		}
		if got := sampled(); got != "a c d e h b f" {
			t.Errorf("the Pods in the order in which they are looked at are %s", got)
		}
		warned := func() string {
			_, a, _, err := s.admit(t, "v1", "namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace",
				"metadata":{"name":"ns","labels":{%q:"restricted"}}}`, api.EnforceLevelLabel),
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns"}}`)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(a.Warned(), "\n")
		}
		if got := warned(); !strings.Contains(got, "\na (and 5 other pods): ") || strings.Contains(got, "only checked") ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("it warns of\n%s", got)
		}
		for i := range securityPods {
			pod(fmt.Sprintf("z%04d", i), "three", "")
		}
		const part = "new PodSecurity enforce level only checked against the first 3000 of 3007 existing pods\n"
		if got := warned(); !strings.HasPrefix(got, part) {
			t.Errorf("it warns of\n%s", got)
		}
	})
}

// sleepy is an evaluator that takes a time for each Pod.
type sleepy struct{ takes time.Duration }

func (e sleepy) EvaluatePod(api.LevelVersion, *metav1.ObjectMeta, *corev1.PodSpec) []policy.CheckResult {
	time.Sleep(e.takes)
	return nil
}

// PodSecurity looks at Pods for a second, and no longer than half of the time that the request has left.
//
// SPEC: AUTH-3
func TestTimeForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "PodSecurity")
		for i := range 20 {
			s.put(t, "v1", "pods", "ns", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%02d",
				"namespace":"ns"},"spec":{}}`, i))
		}
		p := &podSecurity{objects: newObjects(s.store, s.registry), evaluator: sleepy{70 * time.Millisecond}}
		for left, want := range map[time.Duration]int{0: 15, 600 * time.Millisecond: 5, time.Hour: 15} {
			ctx := t.Context()
			if left > 0 {
				limited, cancel := context.WithTimeout(ctx, left)
				defer cancel()
				ctx = limited
			}
			warned := strings.Join(p.violations(ctx, "ns", api.LevelVersion{}), "\n")
			if part := fmt.Sprintf("the first %d of 20 ", want); !strings.Contains(warned, part) {
				t.Errorf("with %v left: %s, want %s", left, warned, part)
			}
		}
	})
}

// Without Pods no namespace has any that a level would not let in.
//
// SPEC: AUTH-3
func TestSecurityWithoutPods(t *testing.T) {
	s := newStage(t, "PodSecurity", "/pods")
	const old = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns"}}`
	_, a, _, err := s.admit(t, "v1", "namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace",
		"metadata":{"name":"ns","labels":{%q:"restricted"}}}`, api.EnforceLevelLabel), old)
	if err != nil || len(a.Warned()) > 0 {
		t.Errorf("%v, %q", err, a.Warned())
	}
}
