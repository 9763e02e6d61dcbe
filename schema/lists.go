package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file checks what list types promise: the items of a set, and the keys of a list of type map, stand in it once.

// listErrors checks the lists of an object. An old object that breaks the promise anywhere lets all of the new one
// pass.
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

// listChecker walks an object. It stops to tell where maxTold is reached.
type listChecker struct {
	errs field.ErrorList
	told int
}

func (l *listChecker) tell(err *field.Error) {
	size := len(err.Field) + len(err.Detail) + badSize(err.BadValue)
	if l.told > 0 && l.told+size > maxTold {
		return
	}
	l.told += size
	l.errs = append(l.errs, err)
}

func (l *listChecker) value(v object.Value, t *Type, at *place) {
	switch v.Kind() {
	case object.Map:
		l.members(v, t, at)
	case object.List:
		l.list(v.Items(), t, at)
	}
}

func (l *listChecker) members(v object.Value, t *Type, at *place) {
	here := place{up: at, index: -1}
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

func (l *listChecker) list(items []object.Value, t *Type, at *place) {
	switch t.ListType {
	case Set:
		for _, i := range duplicates(items) {
			l.tell(field.Duplicate(at.path().Index(i), bad(items[i])))
		}
	case Associative:
		l.keys(items, t, at)
	}
	of := t.Items()
	if of == nil {
		return
	}
	here := place{up: at}
	for i, item := range items {
		here.index = i
		l.value(item, of, &here)
	}
}

// keys checks that no two items have the same keys. An item without any of its keys, which null is, is one of those
// without; two of those are the same. A single key is compared as an item of a set is, several are compared as the
// map that they make.
func (l *listChecker) keys(items []object.Value, t *Type, at *place) {
	for i, item := range items {
		if item.Kind() != object.Map && !item.IsNull() {
			l.tell(field.Invalid(at.path().Index(i), bad(item), "must be an object for an array of list-type map"))
			return
		}
	}
	again := repeated(len(items), func(dst []byte, i int) []byte {
		if len(t.ListKeys) > 1 {
			return object.AppendJSON(dst, keysOf(t, items[i]))
		}
		if v, there := items[i].Get(t.ListKeys[0]); there {
			return appendIdentity(dst, v)
		}
		return dst
	})
	for _, i := range again {
		l.tell(field.Duplicate(at.path().Index(i), bad(keysOf(t, items[i]))))
	}
}

// keysOf is the map of those keys that an item has.
func keysOf(t *Type, item object.Value) object.Value {
	var members []object.Member
	for _, name := range t.ListKeys {
		if v, there := item.Get(name); there {
			members = append(members, object.Member{Key: name, Value: v})
		}
	}
	return object.MapOf(members...)
}

// duplicates finds the items of a list that are there already.
func duplicates(items []object.Value) []int {
	return repeated(len(items), func(dst []byte, i int) []byte { return appendIdentity(dst, items[i]) })
}

// appendIdentity writes what a value is compared by. Lists and maps are the same if they print alike; scalars must be
// of one kind, too.
func appendIdentity(dst []byte, v object.Value) []byte {
	kind := v.Kind()
	if kind == object.List {
		kind = object.Map
	}
	return object.AppendJSON(append(dst, byte(kind)), v)
}

// repeated finds, among n texts, those that are there already: of each its second occurrence, in the order of those.
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
