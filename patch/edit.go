package patch

import (
	"slices"
	"strings"

	"plinth/object"
)

// edit gathers what changes in one map, each key at most once, and makes the new map in one go.
type edit struct {
	base    object.Value
	changes []change
}

// change is the new value of a member, or its end.
type change struct {
	key   string
	value object.Value
	gone  bool
}

// set gives a member its value. One that has it already is left alone, so that it stays shared.
func (e *edit) set(key string, value object.Value) {
	if old, ok := e.base.Get(key); !ok || !object.Equal(old, value) {
		e.changes = append(e.changes, change{key: key, value: value})
	}
}

// put gives a member what has been made of its old value. Only the very same value counts as unchanged: what is below has
// been compared by then, and comparing it again at each level would take quadratic time.
func (e *edit) put(key string, old, made object.Value) {
	if old != made {
		e.changes = append(e.changes, change{key: key, value: made})
	}
}

// drop ends a member, if there is one.
func (e *edit) drop(key string) {
	if _, ok := e.base.Get(key); ok {
		e.changes = append(e.changes, change{key: key, gone: true})
	}
}

// done is the map with all changes, or the old one if there are none.
func (e *edit) done() object.Value {
	if len(e.changes) == 0 {
		return e.base
	}
	byKey := func(a, b change) int { return strings.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(e.changes, byKey) {
		slices.SortFunc(e.changes, byKey)
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
