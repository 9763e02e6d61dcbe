package hooks

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// place is an engine on which requests are made.
type place struct {
	*engine.Engine
	types *engine.Types
}

func newPlace(t *testing.T) place {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return place{engine.New(engine.Config{Store: opened, Registry: registry}), registry.Now()}
}

func parsed(t *testing.T, text string) object.Value {
	t.Helper()
	if text == "" {
		return object.Nil
	}
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// of makes a request for an object of a type, "GROUP/VERSION/RESOURCE".
func (p place) of(t *testing.T, group, version, resource, namespace, name string, operation engine.Operation,
	text, old string) *engine.Attributes {
	t.Helper()
	r := p.types.Find(group, version, resource)
	if r == nil {
		t.Fatalf("there is no type %s", resource)
	}
	rq := &engine.Request{Resource: r, Namespace: namespace, Name: name}
	return p.Attributes(rq, operation, parsed(t, text), parsed(t, old))
}

// A hook is called again if it was called before the object changed: by another hook of its plugin, or after its
// plugin. Each plugin has calls of its own.
//
// SPEC: AUTH-3
func TestPasses(t *testing.T) {
	one, other := object.Fields("a", object.IntOf(1)), object.Fields("a", object.IntOf(2))
	var p Passes
	webhooks, policies := p.Begin("webhooks", one), p.Begin("policies", one)
	webhooks.Called("first")
	webhooks.Called("second")
	webhooks.Changed()
	webhooks.Called("third")
	policies.Called("first")
	webhooks.End(one)
	policies.End(one)
	again := func(of *Calls) (all string) {
		for _, id := range []string{"first", "second", "third"} {
			if of.Again(id) {
				all += id + " "
			}
		}
		return all
	}
	if have := again(p.Begin("webhooks", other)); have != "first second " {
		t.Errorf("in the first pass, with another object: %s", have)
	}
	p.Second = true
	if have := again(p.Begin("webhooks", one)); have != "first second " {
		t.Errorf("the object is the same: %s", have)
	}
	if have := again(p.Begin("policies", one)); have != "" {
		t.Errorf("the object is the same: %s", have)
	}
	if have := again(p.Begin("policies", other)); have != "first " {
		t.Errorf("the object is another one: %s", have)
	}
	if have := again(p.Begin("webhooks", other)); have != "first second third " {
		t.Errorf("the object is another one: %s", have)
	}
	if others := p.Begin("others", one); others == webhooks || others != p.Begin("others", one) ||
		p.Begin("webhooks", one) != webhooks {
		t.Error("the calls of plugins are not their own")
	}
	// What was called before a change is not called again because of the next one.
	calls := &Calls{}
	calls.Called("first")
	calls.Changed()
	calls.again = nil
	calls.Changed()
	if have := again(calls); have != "" {
		t.Errorf("called again after two changes: %s", have)
	}
}

const podOf = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"%s},"spec":{}}`

// What webhooks and expressions are told of a request.
//
// SPEC: AUTH-3
func TestReviewed(t *testing.T) {
	p := newPlace(t)
	a := p.of(t, "", "v1", "pods", "ns", "p", engine.OperationCreate, fmt.Sprintf(podOf, ""), "")
	asked := Questions{Attributes: a}
	q, err := asked.In(t.Context(), a.Request.Resource)
	if err != nil {
		t.Fatal(err)
	}
	const start, middle, end = `{"dryRun":false,"kind":{"group":"","kind":"Pod","version":"v1"},"name":"p",` +
		`"namespace":"ns",`, `"operation":"CREATE","options":{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"},` +
		`"requestKind":{"group":"","kind":"Pod","version":"v1"},` +
		`"requestResource":{"group":"","resource":"pods","version":"v1"},` +
		`"resource":{"group":"","resource":"pods","version":"v1"},`, `"userInfo":{}}`
	const objects = `"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"},` +
		`"spec":{}},"oldObject":null,`
	show := func(v object.Value) string { return string(object.AppendJSON(nil, v)) }
	if have := show(q.ReviewedIn(q.Type)); have != start+middle+end {
		t.Errorf("expressions see %s", have)
	}
	if have := show(q.Reviewed("u")); have != start+objects+middle+`"uid":"u",`+end {
		t.Errorf("webhooks see %s", have)
	}
	a.Request.User = access.User{Name: "jane", UID: "1", Groups: []string{"a"}, Extra: map[string][]string{"k": {"v"}}}
	if have := show(q.ReviewedIn(q.Type)); have != start+middle+
		`"userInfo":{"extra":{"k":["v"]},"groups":["a"],"uid":"1","username":"jane"}}` {
		t.Errorf("expressions see %s", have)
	}
}

// A request is converted to each version once, and again if its object is replaced.
//
// SPEC: AUTH-3
func TestQuestions(t *testing.T) {
	p := newPlace(t)
	const scaler = `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h",` +
		`"namespace":"ns"},"spec":{"maxReplicas":%s,"scaleTargetRef":{"kind":"a","name":"b"}}}`
	a := p.of(t, "autoscaling", "v1", "horizontalpodautoscalers", "ns", "h", engine.OperationCreate,
		fmt.Sprintf(scaler, "3"), "")
	asked := Questions{Attributes: a}
	in := func(version string) *Question {
		q, err := asked.In(t.Context(), p.types.Find("autoscaling", version, "horizontalpodautoscalers"))
		if err != nil {
			t.Fatal(err)
		}
		if q.Now.At("apiVersion").Str() != "autoscaling/"+version {
			t.Errorf("in %s it is %s", version, q.Now.At("apiVersion").Str())
		}
		return q
	}
	one, two := in("v1"), in("v2")
	if one == two || in("v1") != one || in("v2") != two {
		t.Error("a version is made twice")
	}
	asked.Replace(parsed(t, fmt.Sprintf(scaler, "4")))
	if next := in("v1"); next == one || next.Now.At("spec", "maxReplicas").Int() != 4 ||
		a.Object.At("spec", "maxReplicas").Int() != 4 {
		t.Error("the object is not replaced")
	}
	broken, kind := *two.Type, *two.Type.Stored
	kind.Convert = func(context.Context, []object.Value, *engine.Version) ([]object.Value, error) {
		return nil, errors.New("it is broken")
	}
	broken.Stored = &kind
	if q, err := asked.In(t.Context(), &broken); err == nil {
		t.Errorf("what cannot be converted is seen as %v", q.Now.Native())
	}
}

// Refusals name the object, as far as it has a name.
//
// SPEC: AUTH-3
func TestForbidden(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct{ name, text, want string }{
		{"n", `{"metadata":{"name":"m"}}`, "n"}, {"", `{"metadata":{"name":"m","generateName":"g"}}`, "m"},
		{"", `{"metadata":{"generateName":"g"}}`, "g"}, {"", `{}`, "Unknown"},
	} {
		a := p.of(t, "", "v1", "pods", "ns", c.name, engine.OperationCreate, c.text, "")
		a.Name = c.name // "" if the name of the object is generated
		err := Forbidden(a, "no")
		if want := fmt.Sprintf("pods %q is forbidden: no", c.want); err.Message != want || err.Code != 403 {
			t.Errorf("%d %s, want %s", err.Code, err.Message, want)
		}
	}
}

// Rules have a scope, of which "" is any; one that is not known matches nothing. A Namespace is not in a namespace.
//
// SPEC: AUTH-3
func TestScopes(t *testing.T) {
	p := newPlace(t)
	for scope, want := range map[string][3]bool{"": {true, true, true}, "*": {true, true, true},
		"Namespaced": {true, false, false}, "Cluster": {false, true, true}, "Other": {}} {
		rules := RulesOf(parsed(t, fmt.Sprintf(`[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],`+
			`"operations":["*"],"scope":%q}]`, scope)))
		for i, a := range []*engine.Attributes{
			p.of(t, "", "v1", "pods", "ns", "p", engine.OperationDelete, "", ""),
			p.of(t, "", "v1", "nodes", "", "p", engine.OperationDelete, "", ""),
			p.of(t, "", "v1", "namespaces", "p", "p", engine.OperationDelete, "", ""),
		} {
			if have := Match(rules, false, p.types, URLOf(a), nil) != nil; have != want[i] {
				t.Errorf("the scope %q matches %s: %t", scope, a.Request.Resource.Name, have)
			}
		}
	}
}

// A Namespace is in itself, but not an object of another group whose resource has the same name.
//
// SPEC: AUTH-3
func TestNamespaceOfRequests(t *testing.T) {
	p := newPlace(t)
	a := p.of(t, "", "v1", "namespaces", "", "n", engine.OperationCreate, `{}`, "")
	if have := NamespaceOf(a); have != "n" {
		t.Errorf("a Namespace is in %q", have)
	}
	other := *a.Request.Resource
	other.Group = "example.com"
	a.Request.Resource = &other
	if have := NamespaceOf(a); have != "" {
		t.Errorf("it is in %q", have)
	}
}

// Which labels selectors look at, and what is an error.
//
// SPEC: AUTH-3
func TestSelectors(t *testing.T) {
	p := newPlace(t)
	labeled := func(labels string) string { return fmt.Sprintf(podOf, `,"labels":`+labels) }
	pod := func(now, old string) *engine.Attributes {
		return p.of(t, "", "v1", "pods", "ns", "p", engine.OperationUpdate, now, old)
	}
	connect := p.of(t, "", "v1", "pods", "ns", "p", engine.OperationConnect, labeled(`{"a":"x"}`), "")
	ns := func(operation engine.Operation, subresource string) *engine.Attributes {
		a := p.of(t, "", "v1", "namespaces", "ns", "ns", operation, `{"metadata":{"labels":{"a":"x"}}}`, "")
		a.Request.Subresource = a.Request.Resource.Subresource(subresource)
		return a
	}
	const team, two = `{"matchLabels":{"team":"a"}}`, `{"matchLabels":{"a":"x","b":"y"}}`
	for _, c := range []struct {
		namespaces, objects string // selectors
		of                  *engine.Attributes
		want                string
	}{
		{`{}`, two, pod(labeled(`{"a":"x","b":"y"}`), ""), "true"}, {`{}`, two, pod(labeled(`{"a":"x"}`), ""), "false"},
		{`{}`, two, pod(labeled(`{"b":"y"}`), ""), "false"}, {`{}`, two, pod("", labeled(`{"a":"x","b":"y"}`)), "true"},
		{`{}`, `{}`, pod("", ""), "true"}, {`{}`, `{"matchLabels":{"a":"x"}}`, connect, "false"},
		{`{}`, `{}`, connect, "true"},
		{`{}`, `{"matchExpressions":[{"key":"c","operator":"In","values":[""]}]}`, pod(labeled(`{}`), ""), "false"},
		{`{}`, `{"matchExpressions":[{"key":"c","operator":"In","values":[""]}]}`, pod(labeled(`{"c":""}`), ""), "true"},
		{team, `{}`, pod(labeled(`{}`), ""), "true"}, {`{"matchLabels":{"team":"b"}}`, `{}`, pod(labeled(`{}`), ""), "false"},
		{team, `{}`, p.of(t, "", "v1", "pods", "gone", "p", engine.OperationDelete, "", ""),
			`false namespaces "gone" not found`},
		{team, `{}`, p.of(t, "", "v1", "pods", "bad", "p", engine.OperationDelete, "", ""),
			"false Internal error occurred: it is broken"},
		{team, `{}`, p.of(t, "", "v1", "nodes", "", "p", engine.OperationDelete, "", ""), "true"},
		{`{"matchLabels":{"a":"x"}}`, `{}`, ns(engine.OperationCreate, ""), "true"},
		{`{"matchLabels":{"a":"x"}}`, `{}`, ns(engine.OperationUpdate, ""), "true"},
		{team, `{}`, ns(engine.OperationUpdate, ""), "false"}, {team, `{}`, ns(engine.OperationUpdate, "status"), "true"},
		{team, `{}`, ns(engine.OperationDelete, ""), "true"},
		{`{"matchExpressions":[{"key":"c","operator":"Bad"}]}`, `{}`, pod("", ""),
			`false Internal error occurred: "Bad" is not a valid label selector operator`},
		{`{}`, `{"matchExpressions":[{"key":"c","operator":"Bad"}]}`, pod("", ""),
			`false Internal error occurred: "Bad" is not a valid label selector operator`},
	} {
		s := SelectorsOf(parsed(t, fmt.Sprintf(`{"namespaceSelector":%s,"objectSelector":%s}`, c.namespaces, c.objects)))
		selected, err := s.Select(t.Context(), func(_ context.Context, name string) (object.Value, error) {
			switch name {
			case "ns":
				return parsed(t, `{"metadata":{"labels":{"team":"a"}}}`), nil
			case "bad":
				return object.Nil, errors.New("it is broken")
			}
			return object.Nil, nil
		}, LabelsOf(c.of))
		have := fmt.Sprint(selected)
		if err != nil {
			have += " " + err.Error()
		}
		if have != c.want {
			t.Errorf("%s and %s of %s %s: %s, want %s", c.namespaces, c.objects, c.of.Request.Resource.Name, c.of.Operation,
				have, c.want)
		}
	}
}
