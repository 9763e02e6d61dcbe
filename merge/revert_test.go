package merge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// SPEC: BEY-4
func TestRevert(t *testing.T) {
	for _, test := range []struct {
		name, before, after, live string
		reverted, disagreements   string
	}{
		{"nobody has changed it since",
			"spec: {replicas: 1}", "spec: {replicas: 2}", "spec: {replicas: 2}",
			`{"spec":{"replicas":1}}`, ""},
		{"what others have added stays",
			"metadata: {name: w}", "metadata: {name: w, labels: {a: x}}", "metadata: {name: w, labels: {a: x, b: z}}",
			`{"metadata":{"labels":{"b":"z"},"name":"w"}}`, ""},
		{"a map that was added goes with its last member",
			"metadata: {name: w}", "metadata: {name: w, labels: {a: x}}", "metadata: {name: w, labels: {a: x}}",
			`{"metadata":{"name":"w"}}`, ""},
		{"a map that was removed comes back into that of another",
			"metadata: {labels: {a: x}}", "metadata: {name: w}", "metadata: {name: w, labels: {b: z}}",
			`{"metadata":{"labels":{"a":"x","b":"z"}}}`, ""},
		{"a scalar that has changed since",
			"spec: {replicas: 1}", "spec: {replicas: 2}", "spec: {replicas: 3}",
			`{"spec":{"replicas":3}}`, ".spec.replicas 1 2 3"},
		{"a scalar that has gone since",
			"spec: {replicas: 1, selector: {a: b}}", "spec: {replicas: 2, selector: {a: b}}",
			"spec: {selector: {a: c}}",
			`{"spec":{"selector":{"a":"c"}}}`, ".spec.replicas 1 2 -"},
		{"an atomic map is one field",
			"spec: {selector: {a: b}}", "spec: {selector: {a: b, c: d}}", "spec: {selector: {a: b, c: d, e: f}}",
			`{"spec":{"selector":{"a":"b","c":"d","e":"f"}}}`,
			`.spec.selector {"a":"b"} {"a":"b","c":"d"} {"a":"b","c":"d","e":"f"}`},
		{"items by their keys, whatever their order",
			"spec: {containers: [{name: a, image: v1}, {name: b, image: v1}]}",
			"spec: {containers: [{name: a, image: v2}, {name: b, image: v1}]}",
			"spec: {containers: [{name: c, image: v9}, {name: b, image: v3}, {name: a, image: v2, args: [x]}]}",
			`{"spec":{"containers":[{"image":"v9","name":"c"},{"image":"v3","name":"b"},{"args":["x"],"image":"v1","name":"a"}]}}`, ""},
		{"an item that was removed comes back to its place",
			"spec: {containers: [{name: a}, {name: b}, {name: c}]}", "spec: {containers: [{name: a}, {name: c}]}",
			"spec: {containers: [{name: new}, {name: a}, {name: c}]}",
			`{"spec":{"containers":[{"name":"new"},{"name":"a"},{"name":"b"},{"name":"c"}]}}`, ""},
		{"an item that was added and has changed since is taken as a whole",
			"spec: {containers: [{name: a}]}", "spec: {containers: [{name: a}, {name: b, image: v1}]}",
			"spec: {containers: [{name: a}, {name: b, image: v1, args: [x]}]}",
			`{"spec":{"containers":[{"name":"a"},{"args":["x"],"image":"v1","name":"b"}]}}`,
			`.spec.containers[name="b"] - {"image":"v1","name":"b"} {"args":["x"],"image":"v1","name":"b"}`},
		{"an item that has gone since",
			"spec: {containers: [{name: a, image: v1}]}", "spec: {containers: [{name: a, image: v2}]}",
			"spec: {containers: []}",
			`{"spec":{"containers":[]}}`,
			`.spec.containers[name="a"] {"image":"v1","name":"a"} {"image":"v2","name":"a"} -`},
		{"the order of a list",
			"spec: {containers: [{name: a}, {name: b}]}", "spec: {containers: [{name: b}, {name: a}]}",
			"spec: {containers: [{name: b}, {name: a, image: v2}]}",
			`{"spec":{"containers":[{"image":"v2","name":"a"},{"name":"b"}]}}`, ""},
		{"items of a set",
			"metadata: {finalizers: [a/a, b/b]}", "metadata: {finalizers: [b/b, c/c]}",
			"metadata: {finalizers: [b/b, c/c, d/d]}",
			`{"metadata":{"finalizers":["a/a","b/b","d/d"]}}`, ""},
		{"a list with a repeated item is one value",
			"spec: {containers: [{name: a, image: v1}]}", "spec: {containers: [{name: a}, {name: a}]}",
			"spec: {containers: [{name: a}, {name: a}]}",
			`{"spec":{"containers":[{"image":"v1","name":"a"}]}}`, ""},
		{"a value of another kind",
			"spec: {template: {a: 1}}", "spec: {template: [1]}", "spec: {template: [1]}",
			`{"spec":{"template":{"a":1}}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, after, live := yaml(t, test.before), yaml(t, test.after), yaml(t, test.live)
			reverted, all := Revert(before, after, live, widget, false)
			var named []string
			for _, d := range all {
				named = append(named, fmt.Sprintf("%s %s %s %s", d.Path, valueText(d.Before), valueText(d.After),
					valueText(d.Live)))
			}
			if got := string(object.AppendJSON(nil, reverted)); got != test.reverted ||
				strings.Join(named, "\n") != test.disagreements {
				t.Errorf("%s, disagreements %q; should be %s, %q", got, named, test.reverted, test.disagreements)
			}
			forced, _ := Revert(before, after, live, widget, true)
			again, left := Revert(before, after, forced, widget, false)
			if len(left) > 0 || !object.Equal(again, forced) {
				t.Errorf("forced: %s; again: %s, %v", object.AppendJSON(nil, forced), object.AppendJSON(nil, again),
					left)
			}
		})
	}
}

func valueText(v *object.Value) string {
	if v == nil {
		return "-"
	}
	return string(object.AppendJSON(nil, *v))
}

// randomWidget is an object of few values, so that two of them have much in common.
func randomWidget(rng *rand.Rand) object.Value {
	some := func(values ...string) []string {
		return slices.DeleteFunc(values, func(string) bool { return rng.IntN(3) == 0 })
	}
	pick := func(values ...string) string { return values[rng.IntN(len(values))] }
	labels := object.MapOf()
	for _, name := range some("a", "b", "c") {
		labels = labels.With(name, object.StringOf(pick("x", "y")))
	}
	var containers []object.Value
	names := some("a", "b", "c")
	rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for _, name := range names {
		c := object.Fields("name", object.StringOf(name), "image", object.StringOf(pick("v1", "v2", "v3")))
		if rng.IntN(2) == 0 {
			c = c.With("args", object.Strings(append(some("p", "q"), "r")...))
		}
		var ports []object.Value
		for _, number := range some("80", "443") {
			ports = append(ports, object.Fields("port", object.IntOf(int64(len(number))), "name",
				object.StringOf(pick("m", "n"))))
		}
		if ports != nil {
			c = c.With("ports", object.ListOf(ports...))
		}
		containers = append(containers, c)
	}
	template := object.Fields("k", object.Fields("x", object.StringOf(pick("1", "2"))))
	if rng.IntN(5) == 0 {
		template = object.ListOf(object.StringOf(pick("1", "2")))
	}
	v := object.Fields(
		"metadata", object.Fields("labels", labels, "finalizers", object.Strings(some("f/1", "f/2")...)),
		"spec", object.Fields("replicas", object.IntOf(int64(rng.IntN(3))), "containers", object.ListOf(containers...),
			"selector", object.Fields("s", object.StringOf(pick("1", "2"))), "template", template))
	for _, at := range [][]string{{"metadata", "labels"}, {"metadata", "finalizers"}, {"spec", "replicas"},
		{"spec", "containers"}, {"spec", "template"}} {
		if rng.IntN(6) == 0 {
			v = v.WithoutAt(at...)
		}
	}
	return v
}

// leaves are the values of an object at the paths by which it merges, but for maps and lists that are empty.
func leaves(t *testing.T, v object.Value) map[string]string {
	o, err := Owners(v, widget)
	if err != nil {
		t.Fatal(err)
	}
	paths, all := fieldsOf(v, widget), map[string]string{}
	for _, at := range o.Locations {
		if at.Leaf && paths.Has(at.Path) && (at.Value.Kind() == object.String || at.Value.Len() > 0 ||
			at.Value.Kind() == object.Int) {
			all[at.Path.String()] = string(object.AppendJSON(nil, at.Value))
		}
	}
	return all
}

// Reverting is the identity where it should be, and otherwise every field is that of live, that of before, or named.
//
// SPEC: BEY-4
func TestRevertOfRandomChanges(t *testing.T) {
	reverted, kept, named := 0, 0, 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		x, y, live := randomWidget(rng), randomWidget(rng), randomWidget(rng)
		is := func(what string, before, after, live, want object.Value) {
			got, all := Revert(before, after, live, widget, false)
			if len(all) > 0 || !object.Equal(got, want) {
				t.Fatalf("%d: %s: from %s to %s, live %s\nbecomes %s, %v", seed, what, object.AppendJSON(nil, before),
					object.AppendJSON(nil, after), object.AppendJSON(nil, live), object.AppendJSON(nil, got), all)
			}
		}
		is("a change that is the last one", x, y, y, x)
		is("and once more", y, x, x, y)
		is("no change", x, x, live, live)
		is("one that was taken back", x, y, x, x)

		got, all := Revert(x, y, live, widget, false)
		b, a, l, g := leaves(t, x), leaves(t, y), leaves(t, live), leaves(t, got)
		for _, values := range []map[string]string{b, a, l, g} {
			for path := range values {
				disagree := slices.ContainsFunc(all, func(d Disagreement) bool {
					return strings.HasPrefix(path,
						d.Path.String())
				})
				want := l[path]
				switch {
				case disagree: // stays
					named++
				case b[path] != a[path] && a[path] == l[path]:
					want = b[path]
					reverted++
				case b[path] == a[path] || b[path] == l[path]:
					kept++
				default:
					t.Fatalf("%d: nobody says that %s was %q, %q, and is %q", seed, path, b[path], a[path], l[path])
				}
				if g[path] != want {
					t.Fatalf("%d: %s was %q, %q, and is %q; it becomes %q", seed, path, b[path], a[path], l[path],
						g[path])
				}
			}
		}
	}
	if reverted < 10000 || kept < 10000 || named < 10000 {
		t.Errorf("%d fields were reverted, %d kept, and %d named", reverted, kept, named)
	}
}

// SPEC: BEY-4
func TestBlame(t *testing.T) {
	asked := 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		versions := []object.Value{object.Nil}
		for range 1 + rng.IntN(12) {
			v := randomWidget(rng)
			if rng.IntN(10) == 0 {
				v = object.Nil // deleted
			}
			versions = append(versions, v)
		}
		now := randomWidget(rng)
		versions = append(versions, now)
		b, err := NewBlame(now, widget)
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]int{}
		for i := len(versions) - 1; i > 0; i-- {
			set, err := b.Before(versions[i-1])
			if err != nil {
				t.Fatal(err)
			}
			set.Each(func(p Path) {
				if _, twice := by[p.String()]; twice {
					t.Fatalf("%d: %s is set twice", seed, p)
				}
				by[p.String()] = i
			})
		}
		if !b.Left().Empty() {
			t.Fatalf("%d: nobody has set %s", seed, b.Left())
		}
		// What it was, by the paths of each version alone.
		var all []map[string]string
		for _, v := range versions {
			of := map[string]string{}
			if !v.IsNull() {
				of = leaves(t, v)
			}
			all = append(all, of)
		}
		for path, value := range all[len(all)-1] {
			want := len(all) - 1
			for want > 0 && all[want-1][path] == value {
				want--
			}
			if by[path] != want {
				t.Fatalf("%d: %s = %s was set by %d, should be %d", seed, path, value, by[path], want)
			}
			asked++
		}
	}
	if asked < 3000 {
		t.Errorf("%d fields were compared", asked)
	}
}

// SPEC: BEY-4
func FuzzRevert(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{}}`), []byte(`{"a":{"c":[1]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}`), []byte(`{"spec":{"containers":[{}]}}`),
		[]byte(`{"spec":null}`))
	f.Fuzz(func(t *testing.T, one, two, three []byte) {
		var values [3]object.Value
		for i, text := range [][]byte{one, two, three} {
			parsed, err := object.ParseJSON(text)
			if err != nil {
				return
			}
			values[i] = parsed.Value
		}
		x, y, live := values[0], values[1], values[2]
		for _, of := range []*schema.Type{widget, nil} {
			if got, all := Revert(x, y, y, of, false); len(all) > 0 || !object.Equal(got, x) {
				t.Errorf("%s, %s: %s, %v", one, two, object.AppendJSON(nil, got), all)
			}
			if got, all := Revert(x, x, live, of, false); len(all) > 0 || !object.Equal(got, live) {
				t.Errorf("%s, %s: %s, %v", one, three, object.AppendJSON(nil, got), all)
			}
			forced, _ := Revert(x, y, live, of, true)
			if again, all := Revert(x, y, forced, of, false); len(all) > 0 || !object.Equal(again, forced) {
				t.Errorf("%s, %s, %s: %s, then %s, %v", one, two, three, object.AppendJSON(nil, forced),
					object.AppendJSON(nil, again), all)
			}
			Revert(x, y, live, of, false)
		}
	})
}
