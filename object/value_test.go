package object

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// random makes a value and, beside it, the same in the types of encoding/json: the dumb twin.
func random(r *rand.Rand, depth int) (Value, any) {
	switch n := r.IntN(9); {
	case n == 0:
		return Nil, nil
	case n == 1:
		b := r.IntN(2) == 1
		return BoolOf(b), b
	case n == 2:
		i := r.Int64() - r.Int64()
		return IntOf(i), i
	case n == 3:
		f := r.NormFloat64()
		return FloatOf(f), f
	case n < 6 || depth == 0:
		s := strings.Repeat("aé\"\x00", r.IntN(4))
		return StringOf(s), s
	case n == 6:
		var items []Value
		twin := []any{}
		for range r.IntN(5) {
			v, w := random(r, depth-1)
			items, twin = append(items, v), append(twin, w)
		}
		return ListOf(items...), twin
	}
	var members []Member
	twin := map[string]any{}
	for range r.IntN(6) {
		key := string(rune('a' + r.IntN(8)))
		v, w := random(r, depth-1)
		members = append(members, Member{key, v})
		twin[key] = w
	}
	return MapOf(members...), twin
}

func printed(v Value) string { return string(AppendJSON(nil, v)) }

func twinPrinted(t *testing.T, twin any) string {
	t.Helper()
	text, err := json.Marshal(twin)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Values behave like map[string]any and []any, except that a change leaves the old value unchanged.
func TestValuesAgainstTheirTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		v, twin := random(r, 4)
		if got, want := printed(v), twinPrinted(t, twin); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		old, ok := twin.(map[string]any)
		if !ok {
			continue
		}
		before := printed(v)
		key := string(rune('a' + r.IntN(9)))
		add, addTwin := random(r, 2)
		drop := string(rune('a' + r.IntN(9)))

		with, without, edited := clone(old), clone(old), clone(old)
		with[key] = addTwin
		delete(without, key)
		delete(edited, drop)
		edited[key] = addTwin
		for what, got := range map[string]struct {
			v    Value
			twin map[string]any
		}{
			"With":    {v.With(key, add), with},
			"Without": {v.Without(key), without},
			"Edit":    {v.Edit([]Member{{key, add}}, drop), edited},
		} {
			if text, want := printed(got.v), twinPrinted(t, got.twin); text != want {
				t.Fatalf("%s %q, %q of %s: %s, want %s", what, key, drop, before, text, want)
			}
		}
		if after := printed(v); after != before {
			t.Fatalf("With, Without or Edit has changed %s to %s", before, after)
		}
		value, has := v.Get(key)
		if _, want := old[key]; has != want || v.Len() != len(old) {
			t.Fatalf("Get %q of %s finds it: %v", key, before, has)
		}
		if has && !Equal(v.With(key, value), v) || !has && v.Without(key) != v {
			t.Fatalf("setting %q of %s to its value, or dropping it where it is absent, changes the value", key, before)
		}
	}
}

func clone(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// Two values are equal if and only if their texts are, except an integer and a float of the same number.
func TestEqual(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var values []Value
	for range 300 {
		v, _ := random(r, 3)
		values = append(values, v)
		again, err := ParseJSON(AppendJSON(nil, v))
		if err != nil {
			t.Fatal(err)
		}
		if untyped, err := again.Value.Untyped(); err != nil || !Equal(v, untyped) {
			t.Errorf("%s is not equal to the value that its text is parsed as", printed(v))
		}
	}
	for _, a := range values {
		for _, b := range values {
			if got, want := Equal(a, b), printed(a) == printed(b); got != want {
				t.Errorf("Equal(%s, %s) = %v", printed(a), printed(b), got)
			}
		}
	}
	if Equal(IntOf(1), FloatOf(1)) {
		t.Error("an integer and a float are equal")
	}
	if !Equal(ListOf(), ListOf([]Value{}...)) || Equal(ListOf(), Nil) || Equal(MapOf(), Nil) || Equal(ListOf(), MapOf()) {
		t.Error("wrong equality of empty lists, empty maps and null")
	}
}

func TestWays(t *testing.T) {
	v := Nil.WithAt(IntOf(1), "spec", "template", "replicas")
	if got := printed(v); got != `{"spec":{"template":{"replicas":1}}}` {
		t.Error(got)
	}
	if v.At("spec", "template", "replicas").Int() != 1 || !v.At("spec", "none", "replicas").IsNull() ||
		!v.At("spec", "template", "replicas", "deeper").IsNull() {
		t.Error("At does not find a value, or finds one at a path that does not exist")
	}
	for _, c := range []struct {
		way  []string
		want string
	}{
		{[]string{"spec", "template", "replicas"}, `{"spec":{"template":{}}}`},
		{[]string{"spec", "template"}, `{"spec":{}}`},
		{[]string{"spec", "x", "y"}, printed(v)},
		{[]string{"spec", "template", "replicas", "y"}, printed(v)},
	} {
		if got := printed(v.WithoutAt(c.way...)); got != c.want {
			t.Errorf("without %v: %s", c.way, got)
		}
	}
	list := ListOf(IntOf(1), IntOf(2))
	if got := printed(list.WithItem(1, StringOf("x"))); got != `[1,"x"]` || printed(list) != `[1,2]` {
		t.Error(got)
	}
	if got := printed(Fields("b", Strings("x", "y"), "a", BoolOf(true), "b", Nil)); got != `{"a":true,"b":null}` {
		t.Error(got)
	}
}

// The accessors of other kinds return the zero value.
func TestAccessors(t *testing.T) {
	all := map[Kind]Value{
		Null: Nil, Bool: BoolOf(true), Int: IntOf(-7), Float: FloatOf(2.5), Number: NumberOf("1e2"), String: StringOf("s"),
		List: Strings("i"), Map: Fields("k", Nil),
	}
	for kind, v := range all {
		got := []any{v.Kind(), v.IsNull(), v.Bool(), v.Int(), v.Float(), v.Str(), len(v.Items()), len(v.Members()), v.Len()}
		want := map[Kind][]any{
			Null: {Null, true, false, int64(0), 0.0, "", 0, 0, 0}, Bool: {Bool, false, true, int64(0), 0.0, "", 0, 0, 0},
			Int: {Int, false, false, int64(-7), -7.0, "", 0, 0, 0}, Float: {Float, false, false, int64(0), 2.5, "", 0, 0, 0},
			Number: {Number, false, false, int64(0), 100.0, "1e2", 0, 0, 3},
			String: {String, false, false, int64(0), 0.0, "s", 0, 0, 1},
			List:   {List, false, false, int64(0), 0.0, "", 1, 0, 1}, Map: {Map, false, false, int64(0), 0.0, "", 0, 1, 1},
		}[kind]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v, want %v", kind, got, want)
		}
	}
	for _, kind := range []Kind{Bool, Int, String, List} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("With on %v does not panic", kind)
				}
			}()
			all[kind].With("a", Nil)
		}()
	}
}

func ExampleValue_With() {
	deployment, err := ParseJSON([]byte(`{"kind":"Deployment","spec":{"replicas":1}}`))
	if err != nil {
		panic(err)
	}
	scaled := deployment.Value.WithAt(IntOf(3), "spec", "replicas")
	fmt.Printf("%s\n%s\n", AppendJSON(nil, deployment.Value), AppendJSON(nil, scaled))
	// Output:
	// {"kind":"Deployment","spec":{"replicas":1}}
	// {"kind":"Deployment","spec":{"replicas":3}}
}
