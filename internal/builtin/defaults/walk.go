package defaults

import (
	"slices"

	"plinth/object"
)

// A walk visits the members of a map in the order of their keys and collects changes. The map is copied at the first
// change only. Invariants:
//
//	old[:pos] has been passed
//	out == nil, or out = old[:pos] with its changes
//
// The caller must get keys in ascending order, each at most once. A key out of order is not found, and would then
// be set twice; the conformance tests fail for every object that has the field.
type walk struct {
	of  object.Value
	old []object.Member
	pos int
	out []object.Member
}

// spare is the extra capacity of a copied map, for members that are added; few kinds add more to one map.
const spare = 6

// Traced is called at every change that a function of this package makes, from within it. The conformance tests set it
// to see from the call stack which functions have fired; everywhere else it is nil.
var Traced func()

// over starts a walk. A value that is not a map has no members, so absent parts can be walked, too.
func over(m object.Value) walk {
	return walk{of: m, old: m.Members()}
}

// done returns the map with all changes, or the same map if it has no changes.
func (w *walk) done() object.Value {
	if w.out == nil {
		return w.of
	}
	return object.MapOf(append(w.out, w.old[w.pos:]...)...)
}

// get moves to the key and returns its value, null if it is absent.
func (w *walk) get(key string) object.Value {
	passed := w.pos
	for w.pos < len(w.old) && w.old[w.pos].Key < key {
		w.pos++
	}
	if w.out != nil {
		w.out = append(w.out, w.old[passed:w.pos]...)
	}
	if w.at(key) {
		return w.old[w.pos].Value
	}
	return object.Nil
}

func (w *walk) at(key string) bool { return w.pos < len(w.old) && w.old[w.pos].Key == key }

// set sets the value of the key that get has just moved to.
func (w *walk) set(key string, v object.Value) {
	w.copied()
	w.out = append(w.out, object.Member{Key: key, Value: v})
	if w.at(key) {
		w.pos++
	}
}

// drop removes the key that get has just moved to.
func (w *walk) drop(key string) {
	if w.at(key) {
		w.copied()
		w.pos++
	}
}

func (w *walk) copied() {
	if Traced != nil {
		Traced()
	}
	if w.out == nil {
		w.out = make([]object.Member, w.pos, len(w.old)+spare)
		copy(w.out, w.old[:w.pos])
	}
}

// text sets a string that is empty.
func (w *walk) text(key, fallback string) {
	if w.get(key).Len() == 0 {
		w.set(key, object.StringOf(fallback))
	}
}

// number sets an integer that is zero.
func (w *walk) number(key string, fallback int64) {
	if w.get(key).Int() == 0 {
		w.set(key, object.IntOf(fallback))
	}
}

// pointer sets a value that is absent or null.
func (w *walk) pointer(key string, fallback object.Value) {
	if w.get(key).IsNull() {
		w.set(key, fallback)
	}
}

// optional defaults the value of a key if it is present.
func (w *walk) optional(key string, f func(object.Value) object.Value) {
	if old := w.get(key); !old.IsNull() {
		w.replace(key, old, f(old))
	}
}

// part defaults the value of a key, even if it is absent: a struct that is always present.
func (w *walk) part(key string, f func(object.Value) object.Value) {
	old := w.get(key)
	w.replace(key, old, f(old))
}

// list defaults every item of the list under the key.
func (w *walk) list(key string, f func(object.Value) object.Value) {
	old := w.get(key)
	w.replace(key, old, each(old, f))
}

// replace sets the key to the value that f returned for old. An unchanged value is identical in memory.
func (w *walk) replace(key string, old, changed object.Value) {
	if changed != old {
		w.set(key, changed)
	}
}

// each returns the list with every item defaulted.
func each(list object.Value, f func(object.Value) object.Value) object.Value {
	var out []object.Value
	for i, item := range list.Items() {
		changed := f(item)
		if changed == item {
			continue
		}
		if out == nil {
			out = slices.Clone(list.Items())
		}
		out[i] = changed
	}
	if out == nil {
		return list
	}
	return object.ListOf(out...)
}

// part, optional and list as one call, for functions that change a single key.

func partOf(m object.Value, key string, f func(object.Value) object.Value) object.Value {
	w := over(m)
	w.part(key, f)
	return w.done()
}

func optionalOf(m object.Value, key string, f func(object.Value) object.Value) object.Value {
	w := over(m)
	w.optional(key, f)
	return w.done()
}

func listOf(m object.Value, key string, f func(object.Value) object.Value) object.Value {
	w := over(m)
	w.list(key, f)
	return w.done()
}

func pointerOf(m object.Value, key string, fallback object.Value) object.Value {
	w := over(m)
	w.pointer(key, fallback)
	return w.done()
}

func textOf(m object.Value, key, fallback string) object.Value {
	w := over(m)
	w.text(key, fallback)
	return w.done()
}
