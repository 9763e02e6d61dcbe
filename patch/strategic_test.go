package patch

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

var (
	podType        = schema.FromGo(reflect.TypeFor[corev1.Pod](), nil)
	serviceType    = schema.FromGo(reflect.TypeFor[corev1.Service](), nil)
	deploymentType = schema.FromGo(reflect.TypeFor[appsv1.Deployment](), nil)
	budgetType     = schema.FromGo(reflect.TypeFor[policyv1.PodDisruptionBudget](), nil)
	revisionType   = schema.FromGo(reflect.TypeFor[appsv1.ControllerRevision](), nil)
)

// SPEC: WRITE-2
func TestStrategic(t *testing.T) {
	for _, c := range []struct {
		name              string
		typ               *schema.Type
		live, patch, want string
	}{
		{"an empty patch", podType, `{"spec":{"x":1}}`, `{}`, `{"spec":{"x":1}}`},
		{"a null patch", podType, `{"spec":{"x":1}}`, `null`, `{"spec":{"x":1}}`},
		{"null removes", podType, `{"metadata":{"labels":{"a":"1","b":"2"}}}`, `{"metadata":{"labels":{"a":null,"c":null}}}`,
			`{"metadata":{"labels":{"b":"2"}}}`},
		{"new members lose their nulls", podType, `{}`, `{"spec":{"a":null,"b":[null,{"c":null}]}}`,
			`{"spec":{"b":[null,{}]}}`},
		{"kinds may change", podType, `{"spec":{"a":1,"b":[1],"c":{}}}`, `{"spec":{"a":{"x":1},"b":"s","c":[1]}}`,
			`{"spec":{"a":{"x":1},"b":"s","c":[1]}}`},

		{"replace a map", podType, `{"metadata":{"labels":{"a":"1"}}}`,
			`{"metadata":{"labels":{"$patch":"replace","b":null}}}`,
			`{"metadata":{"labels":{"b":null}}}`},
		{"delete a map", podType, `{"metadata":{"labels":{"a":"1"}}}`, `{"metadata":{"labels":{"$patch":"delete","b":"1"}}}`,
			`{"metadata":{"labels":{}}}`},
		{"a directive in a new map", podType, `{}`, `{"metadata":{"labels":{"$patch":"replace","b":"1"},"name":"n"}}`,
			`{"metadata":{"name":"n"}}`},
		{"replace by strategy", budgetType, `{"spec":{"selector":{"matchLabels":{"a":"1"}}}}`,
			`{"spec":{"selector":{"matchLabels":{"b":"2"}}}}`,
			`{"spec":{"selector":{"matchLabels":{"b":"2"}}}}`},

		{"merge items", podType, `{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}}`,
			`{"spec":{"containers":[{"name":"b","image":"2"},{"name":"c"}]}}`,
			`{"spec":{"containers":[{"image":"1","name":"a"},{"image":"2","name":"b"},{"name":"c"}]}}`},
		{"new items keep their nulls", podType, `{"spec":{"containers":[{"name":"a"}]}}`,
			`{"spec":{"containers":[{"name":"b","image":null}]}}`,
			`{"spec":{"containers":[{"image":null,"name":"b"},{"name":"a"}]}}`},
		{"delete an item", podType, `{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"a"}]}}`,
			`{"spec":{"containers":[{"$patch":"delete","name":"a"}]}}`, `{"spec":{"containers":[{"name":"b"}]}}`},
		{"delete and add again", podType, `{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}`,
			`{"spec":{"containers":[{"$patch":"delete","name":"a"},{"name":"a"}],"$setElementOrder/containers":[{"name":"a"}]}}`,
			`{"spec":{"containers":[{"name":"b"},{"name":"a"}]}}`},
		{"replace a list", podType, `{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`,
			`{"spec":{"containers":[{"$patch":"replace"},{"name":"c"}]}}`, `{"spec":{"containers":[{"name":"c"}]}}`},
		{"the same item twice", podType, `{"spec":{"containers":[{"name":"a"}]}}`,
			`{"spec":{"containers":[{"name":"b","image":"1"},{"name":"b","tty":true}]}}`,
			`{"spec":{"containers":[{"image":"1","name":"b","tty":true},{"name":"a"}]}}`},
		{"integers are keys", serviceType, `{"spec":{"ports":[{"port":80,"name":"a"},{"port":81}]}}`,
			`{"spec":{"ports":[{"port":80,"name":"b"}]}}`,
			`{"spec":{"ports":[{"name":"b","port":80},{"port":81}]}}`},
		{"a list without a strategy", podType, `{"spec":{"tolerations":[{"key":"a"},{"key":"b"}]}}`,
			`{"spec":{"tolerations":[{"key":"c"}]}}`,
			`{"spec":{"tolerations":[{"key":"c"}]}}`},

		{"scalars", podType, `{"metadata":{"finalizers":["a/a","b/b"]}}`, `{"metadata":{"finalizers":["c/c","b/b"]}}`,
			`{"metadata":{"finalizers":["c/c","a/a","b/b"]}}`},
		{"delete scalars", podType, `{"metadata":{"finalizers":["a/a","b/b"]}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["b/b","x"]}}`,
			`{"metadata":{"finalizers":["a/a"]}}`},
		{"delete scalars of a missing list", podType, `{}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["b/b"]}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["b/b"]}}`}, // as in the reference
		{"delete before adding", podType, `{"metadata":{"finalizers":["a","b"]}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["a"]}}`,
			`{"metadata":{"finalizers":["a","b"]}}`},
		{"the last item replaces a duplicate", podType, `{"metadata":{"finalizers":["a","b","a","c","d"]}}`,
			`{"metadata":{"finalizers":[]}}`,
			`{"metadata":{"finalizers":["a","b","d","c"]}}`},

		{"order", podType, `{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}]}}`,
			`{"spec":{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}}`},
		{"order and items", podType, `{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"n"},{"name":"b"},{"name":"a"}],"containers":[{"name":"n"},{"name":"b","image":"1"}]}}`,
			`{"spec":{"containers":[{"name":"n"},{"image":"1","name":"b"},{"name":"a"}]}}`},
		{"order of scalars", podType, `{"metadata":{"finalizers":["a","b","c"]}}`,
			`{"metadata":{"$setElementOrder/finalizers":["c","b"]}}`,
			`{"metadata":{"finalizers":["a","c","b"]}}`},
		{"order of a new list", podType, `{"spec":{}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"a"},{"name":"b"}]}}`,
			`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`},
		{"order of a missing list", podType, `{"spec":{}}`, `{"spec":{"$setElementOrder/containers":[{"name":"a"}]}}`,
			`{"spec":{}}`},

		{"retain keys", deploymentType, `{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}`,
			`{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`, `{"spec":{"strategy":{"type":"Recreate"}}}`},
		{"retain keys of an item", podType, `{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}`,
			`{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]}}`,
			`{"spec":{"volumes":[{"hostPath":{"path":"/"},"name":"v"}]}}`},
		{"huge literals stay", revisionType, `{"data":1e999}`, `{"revision":2}`, `{"data":1e999,"revision":2}`},
	} {
		got, err := Strategic(parse(t, c.live), parse(t, c.patch), c.typ)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if text := string(object.AppendJSON(nil, got)); text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
}

// SPEC: WRITE-2, WRITE-6
func TestStrategicErrors(t *testing.T) {
	for _, c := range []struct {
		live, patch string
		kind        error
		message     string
	}{
		{`{}`, `[]`, ErrMalformed, "json: cannot unmarshal array into Go value of type map[string]interface {}"},
		{`{}`, `{"spec":1e999}`, ErrMalformed, "json: cannot unmarshal number 1e999 into Go value of type float64"},
		{`{}`, `{"$patch":"merge"}`, ErrMisfit, "unknown patch type: merge in map: map[$patch:merge]"},
		{`{"spec":{}}`, `{"spec":{"$retainKeys":"a"}}`, ErrMalformed, "invalid patch format of retainKeys"},
		{`{"spec":{}}`, `{"spec":{"$retainKeys":["a"],"b":1}}`, ErrMalformed, "invalid patch format of retainKeys"},
		{`{"spec":{}}`, `{"spec":{"$retainKeys":[{}]}}`, ErrMalformed, "a list can only be merged by scalars, not by {}"},
		{`{"spec":{}}`, `{"spec":{"$deleteFromPrimitiveList":[]}}`, ErrMalformed, "invalid patch format of primitive list"},
		{`{"spec":{}}`, `{"spec":{"$setElementOrderX/a":[]}}`, ErrMalformed, "invalid patch format of setElementOrder list"},
		{`{"spec":{}}`, `{"spec":{"$setElementOrder/containers":{}}}`, ErrMisfit,
			"expected a []interface {}, but received a map[string]interface {}"},
		{`{"spec":{}}`, `{"spec":{"$setElementOrder/a":[]}}`, ErrMisfit,
			`unable to find api field in struct PodSpec for the json field "a"`},
		{`{"spec":{}}`, `{"spec":{"$setElementOrder/hostname":[]}}`, ErrMisfit,
			"expected slice or array type, but got: struct"},
		{`{"spec":{"containers":[{"name":"a"}]}}`, `{"spec":{"containers":[{"image":"x"}]}}`, ErrMisfit,
			"map: map[image:x] does not contain declared merge key: name"},
		{`{"spec":{"containers":[{"name":"a"}]}}`, `{"spec":{"containers":["x"]}}`, ErrMisfit,
			"list element types are not identical: [[map[name:a]] [x]]"},
		{`{"spec":{"containers":[]}}`, `{"spec":{"containers":[[]]}}`, ErrUnprocessable, "lists of lists are not supported"},
		{`{"spec":{"containers":[]}}`, `{"spec":{"containers":[null]}}`, ErrMalformed,
			"a list that begins with null cannot be merged"},
		{`{"spec":{"containers":[]}}`, `{"spec":{"containers":[{"$patch":"merge","name":"a"}]}}`, ErrMisfit,
			"merging lists cannot yet be specified in the patch"},
		{`{"spec":{"containers":[]}}`, `{"spec":{"containers":[{"$patch":"x","name":"a"}]}}`, ErrMisfit,
			"unknown patch type: x in map: map[$patch:x name:a]"},
		{`{"spec":{"containers":[{"name":"a"}]}}`, `{"spec":{"containers":[{"name":{}}]}}`, ErrMalformed,
			"a list can only be merged by scalars, not by {}"},
		{`{"spec":{"containers":[{"name":"a"}]}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"a"}]}}`, ErrMisfit,
			"The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n"},
		{`{"spec":{"x":{"y":{"z":{}}}}}`, `{"spec":{"x":{"y":{"z":{}}}}}`, ErrMisfit,
			`unable to find api field in struct PodSpec for the json field "x"`},
	} {
		_, err := Strategic(parse(t, c.live), parse(t, c.patch), podType)
		if err == nil || !errors.Is(err, c.kind) || err.Error() != c.message {
			t.Errorf("%s: got %q, want %v: %q", c.patch, err, c.kind, c.message)
		}
	}
	if _, err := Strategic(parse(t, `{}`), parse(t, `{}`), nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("without a type: %v", err)
	}
}

// The result shares everything that a patch does not change.
func TestStrategicShares(t *testing.T) {
	live := parse(t,
		`{"metadata":{"labels":{"a":"1"},"finalizers":["a"]},"spec":{"containers":[{"name":"a","env":[{"name":"x"}]},{"name":"b"}]}}`)
	for _, same := range []string{`{}`, `{"metadata":{"labels":{"a":"1"},"finalizers":["a"]}}`,
		`{"spec":{"containers":[{"name":"b"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"tolerations":null}}`} {
		if got, err := Strategic(live, parse(t, same), podType); err != nil || got != live {
			t.Errorf("%s: the result is a copy, error %v", same, err)
		}
		if got := Merge(live, parse(t, `{"metadata":{"labels":{"a":"1"},"name":null}}`)); got != live {
			t.Errorf("the result of a merge patch without effect is a copy")
		}
	}
	got, err := Strategic(live, parse(t, `{"spec":{"containers":[{"name":"b","image":"1"}]}}`), podType)
	if err != nil {
		t.Fatal(err)
	}
	if got.At("metadata") != live.At("metadata") || got.At("spec", "containers").Items()[0] != live.At("spec",
		"containers").Items()[0] {
		t.Errorf("unchanged subtrees are not shared")
	}
}

// Long lists do not take quadratic time, and patches that would take it are refused: four times the items take at most
// five times the allocations, bytes and comparisons. Comparisons are counted if invariants are on.
//
// SPEC: WRITE-6
func TestStrategicIsBounded(t *testing.T) {
	list := func(n int, format string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(format, i)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	type costs struct{ allocations, bytes, comparisons int64 }
	type sized struct {
		name, live, patch string
		refused           bool
	}
	cases := func(many int) []sized {
		return []sized{
			{"items", `{"spec":{"containers":` + list(many, `{"name":"%d"}`) + `}}`,
				`{"spec":{"containers":` + list(many, `{"name":"%d","tty":true}`) + `}}`, false},
			{"deletions", `{"spec":{"containers":` + list(many, `{"name":"%d"}`) + `}}`,
				`{"spec":{"containers":` + list(many, `{"name":"%d","$patch":"delete"}`) + `}}`, false},
			{"duplicates", `{"metadata":{"finalizers":` + strings.ReplaceAll(list(many, `"%d"`), "1", "0") + `}}`,
				`{"metadata":{"finalizers":` + list(many, `"%d"`) + `}}`, false},
			{"members", `{"metadata":{"labels":{}}}`, `{"metadata":{"labels":{` + strings.Trim(list(many, `"%d":null`), "[]") +
				`}}}`, false},
			{"the same item repeatedly", `{"spec":{"containers":[{"name":"a"}]}}`,
				`{"spec":{"containers":` + list(many, `{"name":"a","x%d":1}`) + `}}`, true},
		}
	}
	measure := func(c sized) costs {
		live, patch := parse(t, c.live), parse(t, c.patch)
		var before, after runtime.MemStats
		compared := scalarsRead.Load()
		runtime.ReadMemStats(&before)
		_, err := Strategic(live, patch, podType)
		runtime.ReadMemStats(&after)
		if refused := errors.Is(err, ErrUnprocessable); refused != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %.200v", c.name, err)
		}
		return costs{int64(after.Mallocs - before.Mallocs), int64(after.TotalAlloc - before.TotalAlloc),
			scalarsRead.Load() - compared}
	}
	const few = 10_000
	small, large := cases(few), cases(4*few)
	for i := range small {
		one, four := measure(small[i]), measure(large[i])
		if large[i].refused {
			continue // its costs depend on maxWork and not on its size
		}
		const rest = 10_000 // allocations of other goroutines
		if four.allocations > 5*one.allocations+rest || four.bytes > 5*one.bytes+100*rest ||
			four.comparisons > 5*one.comparisons {
			t.Errorf("%s: %+v for %d items, %+v for %d", small[i].name, one, few, four, 4*few)
		}
		if invariants.Enabled && one.comparisons < few && small[i].name != "members" {
			t.Errorf("%s: only %d comparisons were counted", small[i].name, one.comparisons)
		}
	}
}

// SPEC: WRITE-6
func TestDepth(t *testing.T) {
	deep := func(leaf string) object.Value {
		const n = object.MaxDepth - 2
		return parse(t, `{"spec":`+strings.Repeat(`{"a":`, n)+leaf+strings.Repeat(`}`, n)+`}`)
	}
	if got, err := Strategic(parse(t, `{}`), deep(`{"b":null}`), podType); err != nil || got.IsNull() {
		t.Error(err)
	}
	if _, err := Strategic(deep(`1`), deep(`2`), podType); !errors.Is(err, ErrMisfit) {
		t.Errorf("a map that is not in the type was merged: %v", err)
	}
	if got := Merge(deep(`1`), deep(`2`)); !object.Equal(got, deep(`2`)) {
		t.Error("the merge patch was not applied")
	}
}

// SPEC: WRITE-2
func TestStrategicErrorsHaveThePath(t *testing.T) {
	live := `{"spec":{"containers":[{"name":"a","env":[{"name":"E"}]},{"name":"b"}]}}`
	for patch, want := range map[string]string{
		`{"$patch":"x"}`: "",
		`{"spec":{"containers":[{"image":"x"}]}}`:               "spec.containers",
		`{"spec":{"containers":["x"]}}`:                         "spec.containers",
		`{"spec":{"$retainKeys":"a"}}`:                          "spec",
		`{"spec":{"$deleteFromPrimitiveList/containers":[{}]}}`: "spec.$deleteFromPrimitiveList/containers",

		`{"spec":{"containers":[{"name":"b"},{"name":"a","env":[{"value":"1"}]}]}}`: `spec.containers[name="a"].env`,
		`{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a","env":[{"value":"1"}]}]}}`: `spec.` +
			`containers[name="a"].env`,
	} {
		_, err := Strategic(parse(t, live), parse(t, patch), podType)
		var strategic *StrategicError
		if !errors.As(err, &strategic) {
			t.Errorf("%s: %v", patch, err)
		} else if strategic.Path != want {
			t.Errorf("%s: the error is about %q, want %q", patch, strategic.Path, want)
		}
	}
}
