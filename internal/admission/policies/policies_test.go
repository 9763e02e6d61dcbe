package policies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/access"
	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// bench is a plugin whose params and namespaces are what the test says. It implements Objects.
type bench struct {
	*Plugin
	*engine.Engine
	types     *engine.Types
	store     *store.Store
	param     object.Value
	failure   error // of reading params and namespaces
	namespace object.Value
}

func (b *bench) Get(context.Context, *engine.Resource, string, string) (object.Value, error) {
	return b.param, b.failure
}

func (b *bench) List(context.Context, *engine.Resource, string, labels.Selector) ([]object.Value, error) {
	return []object.Value{b.param}, b.failure
}

func newBench(t *testing.T, mutating bool) *bench {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	opened, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	b := &bench{Engine: engine.New(engine.Config{Store: opened, Registry: registry}), types: registry.Now(),
		store: opened, namespace: parsed(t, `{"metadata":{"name":"ns"}}`)}
	b.Plugin = New(Config{
		Policies: opened.Collection(pathOf(mutating, "policies")),
		Bindings: opened.Collection(pathOf(mutating, "policybindings")),
		Types:    func() *engine.Types { return b.types },
		Namespace: func(context.Context, string) (object.Value, error) {
			return b.namespace, b.failure
		},
		Objects: b, Cache: &cel.Cache{},
	})
	return b
}

func pathOf(mutating bool, suffix string) string {
	return hooks.Group + "/" + map[bool]string{true: "mutating", false: "validating"}[mutating] + "admission" + suffix
}

func parsed(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p.Value
}

// put stores a text as it is; "" deletes it.
func (b *bench) put(t *testing.T, path, name, text string) {
	t.Helper()
	change := store.Change{Key: store.Key{Resource: path, Name: name}, Data: []byte(text)}
	if text == "" {
		change.Data = nil
	}
	if _, err := b.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
		t.Fatal(err)
	}
}

// stored is the text of a stored object.
func (b *bench) stored(t *testing.T, path, name string) string {
	t.Helper()
	v, found := b.store.Get(store.Key{Resource: path, Name: name})
	if !found {
		t.Fatalf("no %s", name)
	}
	return string(v.Data())
}

// kindOf is the kind of a policy, or of a binding, as the members that identify an object of that name.
func kindOf(mutating bool, suffix, name string) string {
	return fmt.Sprintf(`"apiVersion":%q,"kind":"%sAdmissionPolicy%s","metadata":{"name":%q,"uid":"u",`+
		`"creationTimestamp":"2024-01-01T00:00:00Z"}`, hooks.Group+"/v1",
		map[bool]string{true: "Mutating", false: "Validating"}[mutating], suffix, name)
}

const everything = `"matchConstraints":{"matchPolicy":"Equivalent","resourceRules":[{"apiGroups":["*"],` +
	`"apiVersions":["v1","v2"],"operations":["*"],"resources":["pods","services"]}]}`

// label is a mutation.
const label = `{"patchType":"JSONPatch","jsonPatch":{"expression":` +
	`"[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"}}`

// add stores a policy with these members of its spec, and a binding of it with those.
func (b *bench) add(t *testing.T, mutating bool, name, spec, binding string) {
	t.Helper()
	b.put(t, pathOf(mutating, "policies"), name, "{"+kindOf(mutating, "", name)+`,"spec":{`+spec+"}}")
	b.put(t, pathOf(mutating, "policybindings"), name, "{"+kindOf(mutating, "Binding", name)+
		fmt.Sprintf(`,"spec":{"policyName":%q%s}}`, name, binding))
}

// warning is a validating policy that warns of everything with its name, with more members of the spec.
func (b *bench) warning(t *testing.T, name, more string) {
	t.Helper()
	b.add(t, false, name, everything+`,"validations":[{"expression":"false","message":"`+name+`"}]`+more,
		`,"validationActions":["Warn"]`)
}

// of is a request that creates an object of a type.
func (b *bench) of(t *testing.T, r *engine.Resource, spec string) *engine.Attributes {
	t.Helper()
	rq := &engine.Request{Resource: r, Namespace: "ns", Name: "p", User: access.User{Name: "jane"}}
	return b.Attributes(rq, engine.OperationCreate, parsed(t, fmt.Sprintf(
		`{"apiVersion":%q,"kind":%q,"metadata":{"name":"p","namespace":"ns"},"spec":%s}`, r.APIVersion(), r.Kind, spec)),
		object.Nil)
}

// pod is a request that creates a Pod.
func (b *bench) pod(t *testing.T) *engine.Attributes {
	t.Helper()
	return b.of(t, b.types.Find("", "v1", "pods"), `{"containers":[]}`)
}

// warned are the policies that warn of a request, in order.
func (b *bench) warned(t *testing.T, a *engine.Attributes) string {
	t.Helper()
	if err := b.Validate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, text := range a.Warned() {
		_, name, _ := strings.Cut(text, "': ")
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// Policies and bindings hold from the request after their write on, in the order of their names.
//
// SPEC: AUTH-3
func TestPoliciesChange(t *testing.T) {
	b := newBench(t, false)
	policies, bindings := pathOf(false, "policies"), pathOf(false, "policybindings")
	want := func(want string) {
		t.Helper()
		for range 2 {
			if have := b.warned(t, b.pod(t)); have != want {
				t.Errorf("warned by %q, want %q", have, want)
			}
		}
	}
	want("")
	b.warning(t, "b", "")
	want("b")
	b.warning(t, "c", "")
	b.warning(t, "a", "")
	want("a b c")
	b.put(t, bindings, "a", "")
	want("b c")
	b.put(t, policies, "c", "")
	want("b")
	b.warning(t, "b", `,"failurePolicy":"Ignore"`)
	want("b")
	b.put(t, bindings, "b", "{"+kindOf(false, "Binding", "b")+`,"spec":{"policyName":"other"}}`)
	want("")
}

// As long as a policy or a binding cannot be read, nobody knows what it forbids: a request waits for ten seconds, and
// is refused then. Requests for policies are not, so that it can be removed.
//
// SPEC: AUTH-3
func TestUnreadablePolicies(t *testing.T) {
	for _, suffix := range []string{"policies", "policybindings"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, false)
			b.warning(t, "a", "")
			good := b.stored(t, pathOf(false, suffix), "a")
			b.put(t, pathOf(false, suffix), "a", "{")
			b.put(t, pathOf(false, suffix), "z", "{")
			began := time.Now()
			err := b.Validate(t.Context(), b.pod(t))
			if want := `pods "p" is forbidden: not yet ready to handle request: validatingadmission` + suffix +
				`.admissionregistration.k8s.io "a" cannot be read (nor can 1 more)`; err == nil || err.Error() != want ||
				!apierr.Is(err, apierr.Forbidden) || time.Since(began) != 10*time.Second {
				t.Errorf("after %v: %v, want %s", time.Since(began), err, want)
			}
			if err := b.Ready(); err == nil {
				t.Error("the plugin is ready")
			}
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := b.Validate(limited, b.pod(t)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("with a timeout of a second: %v", err)
			}
			about := b.of(t, b.types.Find(hooks.Group, "v1", "validatingadmissionpolicies"), "{}")
			about.Request.Namespace = ""
			if err := b.Validate(t.Context(), about); err != nil {
				t.Errorf("a request for a policy: %v", err)
			}
			time.AfterFunc(3*time.Second, func() {
				b.put(t, pathOf(false, suffix), "a", good)
				b.put(t, pathOf(false, suffix), "z", "")
			})
			if have := b.warned(t, b.pod(t)); have != "a" {
				t.Errorf("warned by %q once all can be read, want a", have)
			}
			if err := b.Ready(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nothing is asked as the server starts, and about reviews of access.
//
// SPEC: AUTH-3
func TestExemptRequests(t *testing.T) {
	b := newBench(t, false)
	b.add(t, false, "a", strings.Replace(everything, `["pods","services"]`, `["*"]`, 1)+
		`,"validations":[{"expression":"false","message":"a"}]`, `,"validationActions":["Warn"]`)
	start := b.pod(t)
	start.Request.OwnStart = true
	if have := b.warned(t, start); have != "" {
		t.Errorf("warned by %q as the server starts", have)
	}
	review := b.of(t, b.types.Find("authentication.k8s.io", "v1", "tokenreviews"), `{"token":"t"}`)
	review.Request.Namespace = ""
	if have := b.warned(t, review); have != "" {
		t.Errorf("warned by %q about a review", have)
	}
	if have := b.warned(t, b.pod(t)); have != "a" {
		t.Errorf("warned by %q, want a", have)
	}
}

// A Namespace is only what the core group calls so: the expressions about others see the namespace that they are in.
//
// SPEC: AUTH-3
func TestOtherNamespaces(t *testing.T) {
	b := newBench(t, false)
	b.add(t, false, "a", everything+`,"validations":[{"expression":"namespaceObject == null","message":"a"}]`,
		`,"validationActions":["Warn"]`)
	other := *b.types.Find("", "v1", "pods")
	other.Group, other.Kind = "example.com", "Namespace"
	if have := b.warned(t, b.of(t, &other, `{}`)); have != "a" {
		t.Errorf("warned by %q, want a", have)
	}
}

// Errors before an expression is evaluated: the namespace, the params, and the version of the object.
//
// SPEC: AUTH-3
func TestErrorsOfPolicies(t *testing.T) {
	const patch = `,"mutations":[` + label + `]`
	const validation = `,"validations":[{"expression":"true"}]`
	broken := errors.New("it is broken")
	for _, mutating := range []bool{true, false} {
		rules := map[bool]string{true: patch, false: validation}[mutating]
		ask := func(b *bench, a *engine.Attributes) string {
			if mutating {
				return fmt.Sprint(b.Admit(t.Context(), a, &hooks.Passes{}))
			}
			return fmt.Sprint(b.Validate(t.Context(), a))
		}
		b := newBench(t, mutating)
		b.add(t, mutating, "a", everything+rules, `,"validationActions":["Deny"]`)
		if have := ask(b, b.pod(t)); have != "<nil>" {
			t.Errorf("%s", have)
		}
		b.failure = broken
		if have := ask(b, b.pod(t)); have != apierr.From(broken).Error() {
			t.Errorf("without a namespace: %s", have)
		}
		b.add(t, mutating, "a", everything+rules+`,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}`,
			`,"validationActions":["Deny"],"paramRef":{"name":"x","parameterNotFoundAction":"Deny"}`)
		if have := ask(b, b.pod(t)); !strings.HasSuffix(have, "denied request: failed to configure binding: it is broken") {
			t.Errorf("without params: %s", have)
		}

		b = newBench(t, mutating)
		scalers := strings.NewReplacer(`"pods","services"`, `"horizontalpodautoscalers"`, `"v1","v2"`, `"v2"`)
		v1 := b.types.Find("autoscaling", "v1", "horizontalpodautoscalers")
		convert := v1.Stored.Convert
		fail := 0 // the conversion that fails
		v1.Stored.Convert = func(ctx context.Context, all []object.Value, to *engine.Version) ([]object.Value, error) {
			if fail--; fail == 0 {
				return nil, broken
			}
			return convert(ctx, all, to)
		}
		for failure, wanted := range map[string]map[bool]string{
			"Fail": {
				true: `policy "a" denied request: failed to configure policy: it is broken`,
				false: `horizontalpodautoscalers.autoscaling "p" is forbidden: ValidatingAdmissionPolicy 'a' with binding ` +
					`'a' denied request: failed to configure binding: failed to convert object version: it is broken`,
			},
			"Ignore": {true: "<nil>", false: "<nil>"},
		} {
			b.add(t, mutating, "a", scalers.Replace(everything)+rules+`,"failurePolicy":"`+failure+`"`,
				`,"validationActions":["Deny"]`)
			fail = 1
			if have := ask(b, b.of(t, v1, `{"maxReplicas":1}`)); have != wanted[mutating] {
				t.Errorf("%t, failurePolicy %s: %s", mutating, failure, have)
			}
		}
		// Without params nothing is validated, and nothing converted; an error before that is the one that counts.
		b.add(t, mutating, "a", scalers.Replace(everything)+rules+`,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}`,
			`,"validationActions":["Deny"],"paramRef":{"name":"x","parameterNotFoundAction":"Allow"}`)
		fail = 1
		if have := ask(b, b.of(t, v1, `{"maxReplicas":1}`)); strings.HasSuffix(have, "it is broken") != mutating {
			t.Errorf("%t, without params: %s", mutating, have)
		}
		b.add(t, mutating, "a", scalers.Replace(everything)+rules+`,"paramKind":{"apiVersion":"v1","kind":"None"}`, "")
		fail = 1
		if have := ask(b, b.of(t, v1, `{"maxReplicas":1}`)); !strings.HasSuffix(have, "/v1, Kind=None'") {
			t.Errorf("%t, with params of no kind: %s", mutating, have)
		}
	}
}

// An object that cannot be converted any more after a change is an internal error.
//
// SPEC: AUTH-3
func TestConversionAfterAChange(t *testing.T) {
	b := newBench(t, true)
	mutations := func(n int) string {
		return `,"mutations":[` + strings.TrimSuffix(strings.Repeat(label+",", n), ",") + `]`
	}
	scalers := strings.NewReplacer(`"pods","services"`, `"horizontalpodautoscalers"`, `"v1","v2"`, `"v2"`)
	v1 := b.types.Find("autoscaling", "v1", "horizontalpodautoscalers")
	convert, calls, last := v1.Stored.Convert, 0, 0
	v1.Stored.Convert = func(ctx context.Context, all []object.Value, to *engine.Version) ([]object.Value, error) {
		if calls++; calls == last {
			return nil, errors.New("it is broken")
		}
		return convert(ctx, all, to)
	}
	// The first one sees the version of the request, which is converted for the others when it has changed it.
	b.add(t, true, "0", strings.Replace(scalers.Replace(everything), `["v2"]`, `["v1"]`, 1)+mutations(1), "")
	b.add(t, true, "a", scalers.Replace(everything)+mutations(2), "")
	b.add(t, true, "b", scalers.Replace(everything)+mutations(1), "")
	ask := func() error { return b.Admit(t.Context(), b.of(t, v1, `{"maxReplicas":1}`), &hooks.Passes{}) }
	if err := ask(); err != nil || calls < 5 {
		t.Fatalf("%v after %d conversions", err, calls)
	}
	for n := 2; n <= calls; n++ {
		total := calls
		calls, last = 0, n
		if err := ask(); err == nil || apierr.From(err).Code != http.StatusInternalServerError {
			t.Errorf("conversion %d fails: %v", n, err)
		}
		calls = total
	}
}

// A type of params that was there and is gone has no params.
//
// SPEC: AUTH-3
func TestParamsOfTypesThatAreGone(t *testing.T) {
	b := newBench(t, false)
	b.param = parsed(t, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"}}`)
	policy := everything + `,"validations":[{"expression":"params == null","message":"a"}],"paramKind":` +
		`{"apiVersion":"batch/v1","kind":"Job"}`
	b.add(t, false, "a", policy, `,"validationActions":["Warn"],"paramRef":{"name":"x","parameterNotFoundAction":"Allow"}`)
	if have := b.warned(t, b.pod(t)); have != "a" {
		t.Errorf("warned by %q, want a", have)
	}
	with := b.types
	b.types = engine.NewRegistry(builtin.Resources(builtin.Config{Serves: func(group, _, _ string, byDefault bool) bool {
		return byDefault && group != "batch"
	}})).Now()
	if have := b.warned(t, b.pod(t)); have != "" {
		t.Errorf("warned by %q without the type", have)
	}
	b.put(t, pathOf(false, "policybindings"), "a", "{"+kindOf(false, "Binding", "a")+`,"spec":{"policyName":"a",`+
		`"validationActions":["Deny"],"paramRef":{"name":"x","parameterNotFoundAction":"Deny"}}}`)
	if err := b.Validate(t.Context(), b.pod(t)); err == nil || !strings.HasSuffix(err.Error(),
		"no params found for policy binding with `Deny` parameterNotFoundAction") {
		t.Errorf("without the type: %v", err)
	}
	b.types = with
	if err := b.Validate(t.Context(), b.pod(t)); err == nil || !strings.HasSuffix(err.Error(), "denied request: a") {
		t.Errorf("with the type again: %v", err)
	}
}

// Mutating policies see the kind of a param only if Kubernetes' client library has no type for it.
//
// SPEC: AUTH-3
func TestKindsOfParams(t *testing.T) {
	for _, c := range []struct {
		apiVersion, kind string
		custom, seen     bool
	}{
		{"v1", "ConfigMap", false, false}, {"v1", "ConfigMap", true, true},
		{"apiextensions.k8s.io/v1", "CustomResourceDefinition", false, true},
	} {
		b := newBench(t, true)
		of := b.types.OfKind(c.apiVersion, c.kind)
		if of == nil {
			t.Fatalf("there is no kind %s", c.kind)
		}
		if c.custom {
			of.Written = func() object.Value { return object.Nil }
		}
		b.param = parsed(t, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"}}`, c.apiVersion, c.kind))
		b.add(t, true, "a", everything+fmt.Sprintf(`,"paramKind":{"apiVersion":%q,"kind":%q}`, c.apiVersion, c.kind)+
			`,"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/metadata/labels', `+
			`value: {'kind': string(has(params.kind)), 'version': string(has(params.apiVersion))}}]"}}]`,
			`,"paramRef":{"name":"x","parameterNotFoundAction":"Deny"}`)
		a := b.pod(t)
		if err := b.Admit(t.Context(), a, &hooks.Passes{}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"kind", "version"} {
			if have := a.Object.At("metadata", "labels", key).Str(); have != fmt.Sprint(c.seen) {
				t.Errorf("%+v: the label %s is %q", c, key, have)
			}
		}
	}
}

// A patch may add a field that the type does not have to an object of a custom type alone, where it is dropped.
//
// SPEC: AUTH-3
func TestUnknownFieldsOfPatches(t *testing.T) {
	for _, custom := range []bool{true, false} {
		b := newBench(t, true)
		pods := b.types.Find("", "v1", "pods")
		if custom {
			pods.Written = func() object.Value { return object.Nil }
		}
		b.add(t, true, "a", everything+`,"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":`+
			`"[JSONPatch{op: 'add', path: '/spec/nothing', value: 'x'}]"}}]`, "")
		a := b.pod(t)
		err := b.Admit(t.Context(), a, &hooks.Passes{})
		if custom != (err == nil) || custom && !a.Object.At("spec", "nothing").IsNull() {
			t.Errorf("%t: %v", custom, err)
		}
	}
}

// What an intent makes has to be an object of the type.
//
// SPEC: AUTH-3
func TestWrongTypesOfIntents(t *testing.T) {
	b := newBench(t, true)
	b.add(t, true, "a", everything+`,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":`+
		`"Object{spec: Object.spec{terminationGracePeriodSeconds: 5.5}}"}}]`, "")
	const want = "policy 'a' with binding 'a' denied request: unable to convert unstructured object to /v1, Kind=Pod: json: " +
		"cannot unmarshal number 5.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64"
	if err := b.Admit(t.Context(), b.pod(t), &hooks.Passes{}); fmt.Sprint(err) != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// A policy that was called and has changed nothing is not called again if the object is the same in the second pass,
// and is called again if it is not.
//
// SPEC: AUTH-3
func TestSecondPass(t *testing.T) {
	b := newBench(t, true)
	checked := 0
	b.metrics.Checked = func(string, string, string, string, time.Duration) { checked++ }
	b.add(t, true, "a", everything+`,"failurePolicy":"Ignore","reinvocationPolicy":"IfNeeded","mutations":[{"patchType":`+
		`"JSONPatch","jsonPatch":{"expression":"[object.nothing]"}}]`, "")
	for again, want := range map[bool]int{true: 2, false: 1} {
		a, passes := b.pod(t), &hooks.Passes{}
		checked = 0
		for range 2 {
			if err := b.Admit(t.Context(), a, passes); err != nil {
				t.Fatal(err)
			}
			passes.Second = true
			if again {
				a.Object = a.Object.WithAt(object.StringOf("x"), "metadata", "labels", "l")
			}
		}
		if checked != want {
			t.Errorf("the policy is called %d times, want %d", checked, want)
		}
	}
}

// The expressions of a policy are counted, since the memory of compiled ones is bounded.
func TestExpressionsAreCounted(t *testing.T) {
	for spec, want := range map[string]int{
		`{}`: 0, `{"variables":[{"name":"a","expression":"1"},{"name":"b","expression":"2"}]}`: 2,
		`{"matchConditions":[{"name":"a","expression":"true"}],"validations":[{"expression":"true"},` +
			`{"expression":"true","messageExpression":"'a'"}],"auditAnnotations":[{"key":"k","valueExpression":"'a'"}]}`: 5,
		`{"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}},{"patchType":"ApplyConfiguration",` +
			`"applyConfiguration":{"expression":"Object{}"}}]}`: 2,
	} {
		if _, n := newProgram(parsed(t, spec)); n != want {
			t.Errorf("%s: %d, want %d", spec, n, want)
		}
	}
}

// Metrics that are nil are not called.
func TestNoMetrics(t *testing.T) {
	m := Metrics{}.complete()
	m.Checked("", "", "", "", 0)
	m.ConditionsRun("", 0, 0, 0)
}
