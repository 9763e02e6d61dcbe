package patch

import (
	"slices"
	"strings"

	"plinth/internal/invariants"
	"plinth/object"
)

// edit collects the changes of one map, and makes the new map in one pass over both:
//
//	done() = base with changes; done() is base itself ⇔ there are no changes
//
// Changing an immutable map key by key would copy it once per key. Invariant: no key occurs twice in changes. The
// members of a patch are sorted, so the changes are sorted, too, unless there are directives.
type edit struct {
	base    object.Value
	changes []change
}

// change is the new value of a member, or its removal.
type change struct {
	key   string
	value object.Value
	gone  bool
}

// set sets a member. If the member already has an equal value, the old value stays, and stays shared.
func (e *edit) set(key string, value object.Value) {
	if old, ok := e.base.Get(key); !ok || !object.Equal(old, value) {
		e.changes = append(e.changes, change{key: key, value: value})
	}
}

// put sets a member to the value that was made from its old one. It compares with ==, that is, the memory only: the
// levels below have been compared already, and comparing them again at each level would take time quadratic in the
// depth.
func (e *edit) put(key string, old, made object.Value) {
	if old != made {
		e.changes = append(e.changes, change{key: key, value: made})
	}
}

// drop removes a member, if it exists.
func (e *edit) drop(key string) {
	if _, ok := e.base.Get(key); ok {
		e.changes = append(e.changes, change{key: key, gone: true})
	}
}

// done returns the map with all changes, or the old one if there are none.
func (e *edit) done() object.Value {
	if len(e.changes) == 0 {
		return e.base
	}
	byKey := func(a, b change) int { return strings.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(e.changes, byKey) {
		slices.SortFunc(e.changes, byKey)
	}
	if invariants.Enabled {
		for i := 1; i < len(e.changes); i++ {
			if e.changes[i-1].key == e.changes[i].key {
				invariants.Fail("patch: a member is changed twice: %s", e.changes[i].key)
			}
		}
	}
	old := e.base.Members()
	members := make([]object.Member, 0, len(old)+len(e.changes))
	for _, c := range e.changes {
		for len(old) > 0 && old[0].Key < c.key {
			members, old = append(members, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].Key == c.key {
			old = old[1:]
		}
		if !c.gone {
			members = append(members, object.Member{Key: c.key, Value: c.value})
		}
	}
	return object.MapOf(append(members, old...)...)
}
