package merge

import (
	"strings"
	"testing"

	"plinth/object"
)

// SPEC: SSA-1
func FuzzFieldsV1(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{".":{}}`, `{"f:a":{},"f:b":{".":{},"f:c":{}}}`, `{"k:{\"name\":\"x\"}":{".":{},"f:y":{}}}`,
		`{"k:{\"a\":1,\"b\":true}":{}}`, `{"v:\"x\"":{},"v:1":{},"v:1.5":{},"v:null":{}}`, `{"i:3":{},"i:-1":{}}`,
		`{"x:odd":{}}`, `{"f":{}}`, `{"k:[]":{}}`, `{"f:a":1}`, `{"k:{\"n\":\"\\u00e9\\\"\"}":{}}`, `{"v:{\"a\":[1,2]}":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := object.ParseJSON(data)
		if err != nil {
			return
		}
		set, err := ParseFieldsV1(parsed.Value)
		if err != nil {
			return
		}
		printed := set.FieldsV1()
		again, err := ParseFieldsV1(printed)
		if err != nil {
			t.Fatalf("%s: printed as %s, which does not parse: %v", data, object.AppendJSON(nil, printed), err)
		}
		if !again.Equal(set) || !object.Equal(again.FieldsV1(), printed) {
			t.Fatalf("%s: printed as %s, which parses as %s", data, object.AppendJSON(nil, printed), again)
		}
		sound(t, set)
		n := 0
		set.Each(func(p Path) {
			n++
			if !set.Has(p) {
				t.Fatalf("%s: Each yields %s, Has denies it", data, p)
			}
		})
		if n != set.Len() {
			t.Fatalf("%s: Each yields %d paths, Len is %d", data, n, set.Len())
		}
	})
}

// sound checks the invariants of every set.
func sound(t *testing.T, s Set) {
	t.Helper()
	for i, n := range s.nodes {
		if i > 0 && s.nodes[i-1].element.Compare(n.element) >= 0 {
			t.Fatalf("a trie has %s before %s", s.nodes[i-1].element, n.element)
		}
		if n.marks == 0 && n.below.Empty() {
			t.Fatalf("the node of %s has neither marks nor paths below", n.element)
		}
		sound(t, n.below)
	}
}

// The laws of sets, on any two of them.
func FuzzSets(f *testing.F) {
	f.Add([]byte(`{"f:a":{},"f:b":{"f:c":{}}}`), []byte(`{"f:a":{".":{},"f:x":{}},"f:b":{}}`))
	f.Add([]byte(`{"k:{\"n\":\"x\"}":{".":{},"f:y":{}}}`), []byte(`{"k:{\"n\":\"x\"}":{"f:y":{}}}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a, ok := setOf(first)
		b, ok2 := setOf(second)
		if !ok || !ok2 {
			return
		}
		all, common, rest, deep := a.Union(b), a.Intersect(b), a.Minus(b), a.MinusAll(b)
		for _, s := range []Set{all, common, rest, deep} {
			sound(t, s)
		}
		if !rest.Union(common).Equal(a) {
			t.Fatalf("the union of a ∖ b, %s, and a ∩ b, %s, is not a, %s", rest, common, a)
		}
		if !all.Equal(b.Union(a)) || !common.Equal(b.Intersect(a)) || !a.Minus(a).Empty() || !a.MinusAll(a).Empty() {
			t.Fatalf("%s with %s", a, b)
		}
		if !common.within(a) || !common.within(b) || !a.within(all) || !deep.within(rest) || all.Len() != rest.Len()+b.Len() {
			t.Fatalf("%s with %s", a, b)
		}
	})
}

func setOf(data []byte) (Set, bool) {
	parsed, err := object.ParseJSON(data)
	if err != nil {
		return Set{}, false
	}
	s, err := ParseFieldsV1(parsed.Value)
	return s, err == nil
}

// FuzzMerge lets one manager apply, and another one update and apply, arbitrary objects.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"spec":{"replicas":1,"containers":[{"name":"a","image":"x"}]}}`),
		[]byte(`{"spec":{"containers":[{"name":"b"},{"name":"a","ports":[{"port":1}]}]}}`))
	f.Add([]byte(`{"metadata":{"finalizers":["a","b"]},"spec":{"selector":{"a":"b"}}}`),
		[]byte(`{"metadata":{"finalizers":["b"]},"spec":{"selector":null,"template":{"x":[1]}}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`), []byte(`{}`))
	f.Add([]byte(`{}`), []byte(`{"spec":{"containers":[{}]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`),
		[]byte(`{"spec":{"containers":[{"ports":[{"port":1},{"port":1,"protocol":"TCP"}]}]}}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a, ok := intentOf(first)
		b, ok2 := intentOf(second)
		if !ok || !ok2 {
			return
		}
		one, two := Writer{Manager: "one", APIVersion: "v1", Now: "2026-01-01T00:00:00Z"},
			Writer{Manager: "kubectl", APIVersion: "v1", Force: true, Now: "2026-01-01T00:00:01Z"}
		live, err := widgets.Apply(object.Nil, a, one)
		if err != nil {
			return
		}
		live = live.WithAt(object.StringOf("u"), "metadata", "uid")
		holds(t, live, a)
		if again, err := widgets.Apply(live, a, one); err != nil || !object.Equal(again, live) {
			t.Fatalf("%s applied again: %v\n%s\nwas\n%s", first, err, object.AppendJSON(nil, again),
				object.AppendJSON(nil, live))
		}
		if both, err := widgets.Apply(live, b, two); err == nil {
			holds(t, both, b)
		}
		updated, err := widgets.Update(live, b.WithAt(object.StringOf("u"), "metadata", "uid"), two)
		if err != nil {
			if _, wrong := checkedFieldsOf(b, widget, new(arena)); wrong == nil {
				t.Fatalf("%s cannot be tracked: %v", second, err) // only an item without its keys may have no owner
			}
			return
		}
		if again,
			err := widgets.Update(updated, updated, Writer{Manager: "idle", APIVersion: "v1",
			Now: "2026-01-01T00:00:02Z"}); err != nil || !object.Equal(again, updated) {
			t.Fatalf("an update without a change made %s from %s",
				object.AppendJSON(nil, again), object.AppendJSON(nil, updated))
		}
		if _, err := Owners(updated, widget); err != nil {
			t.Fatal(err)
		}
	})
}

// intentOf is the intent of an apply of a Widget with this body.
func intentOf(data []byte) (object.Value, bool) {
	parsed, err := object.ParseJSON(data)
	if err != nil || parsed.Value.Kind() != object.Map || strings.Contains(string(data), "managedFields") {
		return object.Nil, false
	}
	decoded, err := widget.DecodePart(parsed.Value)
	if err != nil {
		return object.Nil, false
	}
	return decoded.Value.With("apiVersion", object.StringOf("v1")).With("kind", object.StringOf("Widget")), true
}

// holds checks that the result contains the whole intent: a second join would change nothing.
func holds(t *testing.T, result, intent object.Value) {
	t.Helper()
	for _, e := range result.At("metadata", "managedFields").Items() {
		if _, err := ParseFieldsV1(e.At("fieldsV1")); err != nil {
			t.Fatal(err)
		}
	}
	intent = intent.WithoutAt("metadata", "annotations", LastApplied)
	joined, err := join(result, intent, widget)
	if err != nil || !same(joined, result) {
		t.Fatalf("the intent %s is not contained in the result\n%s: %v",
			object.AppendJSON(nil, intent), object.AppendJSON(nil, result), err)
	}
}
