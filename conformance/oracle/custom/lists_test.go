package custom

import (
	"slices"
	"strings"
	"testing"
)

// Cases that a generator seldom makes: different values with the same text, and updates that only change an order.
// SPEC: EXT-1
func TestLists(t *testing.T) {
	byKey := node{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"k"},
		"maxItems": 1, "items": node{
			"type": "object", "required": []any{"k"}, "properties": node{"k": node{"type": "number"},
				"v": node{"type": "integer", "maximum": 1}},
		}}
	byKeys := clone(byKey).(node)
	byKeys["x-kubernetes-list-map-keys"] = []any{"k", "v"}
	byKeys["items"].(node)["required"] = []any{"k", "v"}
	atoms := node{"type": "array", "maxItems": 1, "items": node{"type": "integer"}}
	one := literal("1.0")
	for _, c := range []struct {
		name     string
		of       node
		old, new []any
		has      string // of the causes of the reference; "" if there are none
	}{
		{"a set", node{"type": "array", "x-kubernetes-list-type": "set", "items": node{"type": "number"}}, nil,
			[]any{1, one, "1", 1.5, 1.5, nil, nil, []any{1}, []any{one}, node{}, true, true, 1}, "Duplicate value: 1.5"},
		{"keys", byKey, nil, []any{node{"k": 1}, node{"k": one}, node{"v": 1}, node{}, node{"k": nil}, nil, node{"k": 1}},
			"Duplicate value"},
		{"several keys", byKeys, nil, []any{node{"k": 1, "v": 2}, node{"k": one, "v": 2}, node{"k": 1}, node{}, nil},
			"Duplicate value"},
		{"an item that is none", byKey, nil, []any{node{"k": 1}, node{"k": 1}, 5}, "must be an object"},
		{"another order", byKey, []any{node{"k": 1, "v": 9}, node{"k": 2}}, []any{node{"k": 2}, node{"k": 1, "v": 9}}, ""},
		{"another order and value", byKey, []any{node{"k": 1, "v": 9}, node{"k": 2}},
			[]any{node{"k": 2, "v": 0}, node{"k": 1, "v": 9}}, "Too many"},
		{"another order of atoms", atoms, []any{1, 2}, []any{2, 1}, "Too many"},
		{"the same atoms", atoms, []any{1, 2}, []any{1, 2}, ""},
		{"duplicates there were", byKey, []any{node{"k": 1}, node{"k": 1}}, []any{node{"k": 1}, node{"k": 1}}, ""},
	} {
		s := node{"type": "object", "properties": node{"spec": c.of}}
		reference, err := newReference(s)
		if err != nil {
			t.Fatal(err)
		}
		plinth, err := newPlinth(s)
		if err != nil {
			t.Fatal(err)
		}
		text := func(list []any) string {
			return encoded(node{"apiVersion": "example.org/v1", "kind": "Example", "metadata": node{"name": "a"}, "spec": list})
		}
		var refOld, ourOld any
		if c.old != nil {
			_, refOld = reference.take(text(c.old), nil)
			_, ourOld = plinth.take(text(c.old), nil)
		}
		want, _ := reference.take(text(c.new), refOld)
		got, _ := plinth.take(text(c.new), ourOld)
		if d := difference(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if is := slices.ContainsFunc(want.causes,
			func(cause string) bool { return strings.Contains(cause, c.has) }); is != (c.has != "") {
			t.Errorf("%s: the reference gives %v", c.name, want.causes)
		}
	}
}
