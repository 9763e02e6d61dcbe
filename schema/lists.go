package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file validates lists by their types: no item of a set, and no keys of an item of a list of type map, may occur
// twice (ValidateListSetsAndMaps of apiextensions-apiserver's package listtype). A merge identifies items by these; if
// two items had the same identity, it would be undefined which of them an intent refers to.
//
//	x-kubernetes-list-type    duplicates are            example of an error
//	set                       equal items               [a, b, a]: Duplicate value at [2]
//	map                       items with equal keys     [{name: a, v: 1}, {name: a, v: 2}]: Duplicate value at [1]
//	atomic, or none           not checked
//
// Comparing each item with all others takes minutes for a list of a hundred thousand items, which a client may send;
// see repeated.

// listErrors validates all lists of an object. If a list of the old object is invalid, those of the new one are not
// validated at all: the owner of such an object must be able to update it. This is coarser than the ratcheting of
// [Pair], and matches the reference.
func (t *Type) listErrors(v, old object.Value) field.ErrorList {
	var found listChecker
	found.members(v, t, nil)
	if len(found.errs) == 0 || old.IsNull() {
		return found.errs
	}
	var before listChecker
	before.members(old, t, nil)
	if len(before.errs) > 0 {
		return nil
	}
	return found.errs
}

// listChecker walks an object and reports the lists that break the rules of their type.
type listChecker struct{ reporter }

// value checks the lists below a value. t may be a type for another kind of value, and then has no type for the values
// below.
func (l *listChecker) value(v object.Value, t *Type, at *location) {
	switch v.Kind() {
	case object.Map:
		l.members(v, t, at)
	case object.List:
		l.list(v.Items(), t, at)
	}
}

func (l *listChecker) members(v object.Value, t *Type, at *location) {
	here := location{up: at, index: -1}
	members := v.Members()
	for i := range members {
		switch members[i].Value.Kind() {
		case object.Map, object.List:
			here.key = members[i].Key
			if of := t.member(here.key); of != nil {
				here.free = t.Field(here.key) == nil
				l.value(members[i].Value, of, &here)
			}
		}
	}
}

// list checks a list and its items. The list type counts wherever the value is a list.
func (l *listChecker) list(items []object.Value, t *Type, at *location) {
	switch t.ListType {
	case Set:
		l.duplicates(duplicates(items), at, func(i int) object.Value { return items[i] })
	case Associative:
		l.keys(items, t, at)
	}
	of := t.Items()
	if of == nil {
		return
	}
	here := location{up: at}
	for i, item := range items {
		here.index = i
		l.value(item, of, &here)
	}
}

// keys checks that no two items have the same keys. All items without any key, null among them, count as the same. A
// single key is compared as the items of a set are, several keys as the map of these keys: the two differ in how 1 and
// 1.0 compare, which are the same number in JSON. The check of the list stops at an item that is not a map.
func (l *listChecker) keys(items []object.Value, t *Type, at *location) {
	for i, item := range items {
		if item.Kind() != object.Map && !item.IsNull() {
			if l.full {
				return
			}
			l.report(field.Invalid(at.path().Index(i), BadValue(item), "must be an object for an array of list-type map"))
			return
		}
	}
	again := repeated(len(items), func(dst []byte, i int) []byte {
		if len(t.ListKeys) > 1 {
			return object.AppendJSON(dst, keysOf(t, items[i]))
		}
		if v, ok := items[i].Get(t.ListKeys[0]); ok {
			return appendIdentity(dst, v)
		}
		return dst
	})
	l.duplicates(again, at, func(i int) object.Value { return keysOf(t, items[i]) })
}

// duplicates reports items of the list at a place by their indices. shown returns the value that the error shows.
func (l *listChecker) duplicates(indices []int, at *location, shown func(i int) object.Value) {
	for _, i := range indices {
		if l.full {
			return
		}
		l.report(field.Duplicate(at.path().Index(i), BadValue(shown(i))))
	}
}

// keysOf is the map of those keys that an item has, which the error of a duplicate shows.
func keysOf(t *Type, item object.Value) object.Value {
	var members []object.Member
	for _, name := range t.ListKeys {
		if v, ok := item.Get(name); ok {
			members = append(members, object.Member{Key: name, Value: v})
		}
	}
	return object.MapOf(members...)
}

// duplicates are the indices of items that equal an earlier one: for each value, that of its second occurrence.
func duplicates(items []object.Value) []int {
	return repeated(len(items), func(dst []byte, i int) []byte { return appendIdentity(dst, items[i]) })
}

// appendIdentity appends the bytes by which a value is compared: its kind and its JSON, where lists and maps count as
// one kind. The kind distinguishes 1 from 1.0, which are printed alike, and 1 from "1".
func appendIdentity(dst []byte, v object.Value) []byte {
	kind := v.Kind()
	if kind == object.List {
		kind = object.Map
	}
	return object.AppendJSON(append(dst, byte(kind)), v)
}

// repeated are the indices of the second occurrences among n texts, in ascending order: a value that occurs a thousand
// times is one error. Texts are compared by a map, since comparing each with each would take quadratic time for a list
// of a hundred thousand items; the map holds a copy of each distinct text.
func repeated(n int, appendText func(dst []byte, i int) []byte) (again []int) {
	if n < 2 {
		return nil
	}
	times := make(map[string]int, n)
	var scratch []byte
	for i := range n {
		scratch = appendText(scratch[:0], i)
		if times[string(scratch)]++; times[string(scratch)] == 2 {
			again = append(again, i)
		}
	}
	return again
}
