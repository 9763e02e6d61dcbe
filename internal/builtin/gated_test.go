package builtin

import (
	"slices"
	"testing"

	"plinth/internal/access"
	"plinth/internal/features"
	"plinth/object"
)

// holding is an object that has a value at the end of a path.
func holding(path []string) object.Value {
	if len(path) == 0 {
		return object.StringOf("kept")
	}
	inner := holding(path[1:])
	switch path[0] {
	case everyItem:
		return object.ListOf(inner)
	case everyMember:
		return object.MapOf(object.Member{Key: "m", Value: inner})
	}
	return object.MapOf(object.Member{Key: path[0], Value: inner})
}

// has says whether there is a value at the end of a path, in every item on the way.
func has(v object.Value, path []string) bool {
	switch {
	case len(path) == 0:
		return v.Str() == "kept"
	case path[0] == everyItem:
		return v.Len() == 1 && has(v.Items()[0], path[1:])
	case path[0] == everyMember:
		return has(v.At("m"), path[1:])
	}
	member, ok := v.Get(path[0])
	return ok && has(member, path[1:])
}

// leavesOf are the paths of one feature of a tree.
func (b *branch) leavesOf(bit int, at []string) (all [][]string) {
	if b.leaf>>bit&1 != 0 {
		all = append(all, at)
	}
	for _, n := range b.next {
		all = append(all, n.leavesOf(bit, append(slices.Clone(at), n.step))...)
	}
	return all
}

// Each gated field is dropped while its gate is off, unless the old object has it, and kept while its gate is on; other
// gates have no effect on it.
//
// SPEC: WRITE-4, RUN-1
func TestGatesDecideOnTheirFields(t *testing.T) {
	fields, gates := 0, map[features.Gate]bool{}
	eachKind(func(name string, k *kind) {
		for i, places := range [][]gated{k.gated, k.gatedStatus} {
			prepare := func(obj, old object.Value, set features.Set) object.Value {
				row := *k
				row.features, row.onCreate, row.onUpdate, row.onStatus = set, nil, nil, nil
				switch {
				case i == 1:
					return row.writeStatus(old, obj)
				case old.IsNull():
					return row.prepareCreate(obj, access.User{})
				}
				return row.prepareUpdate(obj, old)
			}
			for _, g := range places {
				tree := g.tree()
				var all features.Set
				for _, gate := range tree.gates {
					all = all.With(gate, true)
				}
				for bit, gate := range tree.gates {
					gates[gate] = true
					for _, path := range tree.root.leavesOf(bit, g.at) {
						fields++
						sent := holding(path)
						old := holding(path[:1])
						for _, c := range []struct {
							state    string
							old      object.Value
							set      features.Set
							expected bool
						}{
							{"off", object.Nil, all.With(gate, false), false},
							{"off, on update", old, all.With(gate, false), false},
							{"off, but used before", sent, features.Set{}, true},
							{"on", object.Nil, features.Set{}.With(gate, true), true},
							{"on, on update", old, features.Set{}.With(gate, true), true},
						} {
							if i == 0 && path[0] == "status" && !c.old.IsNull() {
								c.expected = has(c.old, path) // an update of the main URL does not change the status
							}
							if got := prepare(sent, c.old, c.set); has(got, path) != c.expected {
								t.Errorf("%s, %s is %s: %v becomes %s", name, gate, c.state, path, show(got))
							}
						}
					}
				}
			}
		}
	})
	if fields < 800 || len(gates) < 50 {
		t.Errorf("only %d fields of %d gates were there", fields, len(gates))
	}
}
