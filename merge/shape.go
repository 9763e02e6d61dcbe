package merge

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// The functions of this file decide by the schema how a value merges. All walks over values use them and no other
// source, so that they agree on which values are one field: where fieldsOf finds a leaf, compare must not descend, and
// without must not remove parts.
//
// For every type and value, a place is one of these:
//
//	leaf                 a scalar                               one path, replaced as a whole
//	mapping, atomic      x-kubernetes-map-type: atomic          one path, replaced as a whole
//	mapping, granular    structs and maps                       members by name
//	listing, atomic      lists, unless the schema says other    one path, replaced as a whole
//	listing, associative x-kubernetes-list-type: map or set     items by identity

// shape is how a merge treats a value. It depends on the value because some types admit several kinds: a custom field
// with x-kubernetes-preserve-unknown-fields may hold a map in live and a list in the intent.
type shape uint8

const (
	leaf    shape = iota // replaced as a whole
	mapping              // members by name: structs and maps
	listing              // items
)

// deduced is the type of values without a schema (SSA-9): maps are granular, lists atomic.
var deduced = &schema.Type{Kind: schema.Any}

// shapeOf is the shape of a value. The type decides; the value does only where the type admits several kinds, and null
// is a mapping then. A null of a struct is a mapping, too: it has no members, and so no paths below it.
func shapeOf(t *schema.Type, v object.Value) shape {
	switch t.Kind {
	case schema.Struct, schema.Map:
		return mapping
	case schema.List:
		return listing
	case schema.Any:
		switch v.Kind() {
		case object.Map, object.Null:
			return mapping
		case object.List:
			return listing
		}
	}
	return leaf
}

// atomic says whether a mapping or listing of this type is owned as a whole (SSA-8). s is the shape of a value of type
// t; a list in a value without a schema is always atomic, as its keys are unknown.
func atomic(t *schema.Type, s shape) bool {
	if s == mapping {
		return t.AtomicMap
	}
	return t.Kind != schema.List || t.ListType == schema.Atomic
}

// memberType is the type of a member, and whether it is declared by name. A declared one is not a path by itself
// (fieldsOf). The result is never nil; deduced stands for members that the schema does not describe.
func memberType(t *schema.Type, name string) (of *schema.Type, declared bool) {
	switch t.Kind {
	case schema.Struct:
		if f := t.Field(name); f != nil {
			return f.Type, true
		}
		if t.Elem != nil {
			return t.Elem, false
		}
	case schema.Map:
		return t.Elem, false
	case schema.Any: // a custom type may describe members without requiring a map
		if f := t.Field(name); f != nil {
			return f.Type, true
		}
		if of := t.Additional(); of != nil {
			return of, false
		}
	}
	return deduced, false
}

// itemType is the type of the items of a listing.
func itemType(t *schema.Type) *schema.Type {
	if t.Elem != nil {
		return t.Elem
	}
	return deduced
}

// identify is the identity of an item of an associative list: its value in a set, the value of its key if the list has
// one key, a map of its keys if the list has several. A missing key has its default; without a default it is left out,
// unless all are (SSA-8). The errors are worded as those of the reference.
//
// The default is part of the identity, because live has it and an intent need not: [port=80] of an intent and
// [port=80,protocol="TCP"] of live must be one item. A single key is not wrapped in a map, as nearly all lists have
// one, and identities are compared far more often than they are printed.
//
//	list                          item                    identity                      element
//	finalizers, a set             a.b/c                   "a.b/c"                       v:"a.b/c"
//	containers, by name           {name: web, image: a}   "web"                         k:{"name":"web"}
//	ports, by port and protocol   {port: 80}              {port: 80, protocol: "TCP"}   k:{"port":80,"protocol":"TCP"}
func identify(t *schema.Type, item object.Value) (object.Value, error) {
	if t.ListType == schema.Set {
		switch item.Kind() {
		case object.Map:
			return object.Nil, errors.New("associative list without keys has an element that's a map type")
		case object.List:
			return object.Nil, errors.New("not supported: associative list with lists as elements")
		case object.Null:
			return object.Nil, errors.New("associative list without keys has an element that's an explicit null")
		}
		return item, nil
	}
	switch item.Kind() {
	case object.Map:
	case object.Null:
		return object.Nil, errors.New("associative list with keys may not have a null element")
	default:
		return object.Nil, errors.New("associative list with keys may not have non-map elements")
	}
	if len(t.ListKeys) == 1 {
		if v, ok := keyOf(t, item, t.ListKeys[0]); ok {
			return v, nil
		}
	} else {
		keys := make([]object.Member, 0, len(t.ListKeys))
		for _, name := range t.ListKeys {
			if v, ok := keyOf(t, item, name); ok {
				keys = append(keys, object.Member{Key: name, Value: v})
			}
		}
		if len(keys) > 0 {
			return object.MapOf(keys...), nil
		}
	}
	return object.Nil, fmt.Errorf("associative list with keys has an element that omits all key fields %q "+
		"(and doesn't have default values for any key fields)", t.ListKeys)
}

// keyOf is the value of one key of an item, or its default. ok is false if it has neither.
func keyOf(t *schema.Type, item object.Value, name string) (key object.Value, ok bool) {
	if v, ok := item.Get(name); ok {
		return v, true
	}
	f := itemType(t).Field(name)
	if f == nil {
		return object.Nil, false
	}
	v := f.Implied()
	return v, !v.IsNull()
}

// elementOf is the element of the item with this identity, the form in which managedFields name it. Inside of an
// operation items are compared by identity; an element is made only for the node of a trie.
func elementOf(t *schema.Type, id object.Value) Element {
	switch {
	case t.ListType == schema.Set:
		return ItemElement(id)
	case len(t.ListKeys) == 1:
		return KeyElement(object.MapOf(object.Member{Key: t.ListKeys[0], Value: id}))
	}
	return KeyElement(id)
}

// identityIn is the inverse of elementOf: the identity that an element stands for in lists of this type. ok is false
// for elements that such lists do not have, as in sets of paths that a client has written.
func identityIn(t *schema.Type, e Element) (id object.Value, ok bool) {
	switch {
	case t.Kind != schema.List || t.ListType == schema.Atomic:
		return object.Nil, false
	case t.ListType == schema.Set:
		return e.v, e.step == Item
	case e.step != Key:
		return object.Nil, false
	case len(t.ListKeys) == 1:
		keys := e.v.Members()
		if len(keys) != 1 || keys[0].Key != t.ListKeys[0] {
			return object.Nil, false
		}
		return keys[0].Value, true
	}
	return e.v, true
}

// itemIndex is an index of the items of an associative list by their identities. An identity may occur several times;
// the index has all occurrences, in the order of the list: first(id), and from there on by next.
//
// Why not a Go map: identities are values of any kind, among which 1 and 1.0 are equal, so that a map would need keys
// made of text, one per item; and maps of a few entries are slower than a loop. Small lists are searched linearly, and
// nearly all are small. Larger ones have their positions sorted by (identity, position): an apply to a list of
// thousands of items looks up each of them.
//
// Invariant: sorted = nil, or sorted is a permutation of 0 … len(ids)-1 with (ids[sorted[k]], sorted[k]) <
// (ids[sorted[k+1]], sorted[k+1]).
type itemIndex struct {
	ids    []object.Value          // of each item
	sorted []int32                 // nil for small lists
	array  [smallList]object.Value // memory of ids for small lists
}

// itemIndexes keeps unused ones, so that the many small lists of an object cost no allocations. An operation uses twice
// as many at a time as lists are nested: one of the old list and one of the new.
var itemIndexes = sync.Pool{New: func() any { return new(itemIndex) }}

func newItemIndex() *itemIndex { return itemIndexes.Get().(*itemIndex) }

// free returns the index to the pool, without any values that the pool would keep alive. ids may point into array, so
// that no part of the index may be used afterwards.
func (r *itemIndex) free() {
	clear(r.array[:])
	r.ids, r.sorted = nil, nil
	itemIndexes.Put(r)
}

// smallList is the greatest number of items that are searched linearly.
const smallList = 12

// build fills the index with the items of a list of type t, which is associative. An item without identity is an error,
// after which the index must not be used but to be freed or built again.
func (r *itemIndex) build(t *schema.Type, items []object.Value) error {
	r.ids, r.sorted = r.array[:0], nil
	if len(items) > smallList {
		r.ids = make([]object.Value, 0, len(items))
	}
	for i, item := range items {
		id, err := identify(t, item)
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		r.ids = append(r.ids, id)
	}
	if len(items) > smallList {
		r.sorted = sortedByIdentity(r.ids)
	}
	if invariants.Enabled {
		r.check()
	}
	return nil
}

// first is the position of the first item of this identity, -1 if there is none.
func (r *itemIndex) first(id object.Value) int {
	if r.sorted == nil {
		for i := range r.ids {
			if same(r.ids[i], id) {
				return i
			}
		}
		return -1
	}
	return r.occurrence(id, 0)
}

// next is the position of the next item of the same identity as the one at i, -1 if it is the last.
func (r *itemIndex) next(i int) int {
	if r.sorted == nil {
		for k := i + 1; k < len(r.ids); k++ {
			if same(r.ids[k], r.ids[i]) {
				return k
			}
		}
		return -1
	}
	return r.occurrence(r.ids[i], i+1)
}

// occurrence is the least position ≥ from of an item of this identity, -1 if there is none. It is a binary search for
// (id, from), so that a walk over all items of one identity by next is not quadratic.
func (r *itemIndex) occurrence(id object.Value, from int) int {
	lo, hi := 0, len(r.sorted)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		k := int(r.sorted[mid])
		if c := compareValues(r.ids[k], id); c < 0 || c == 0 && k < from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(r.sorted) && same(r.ids[r.sorted[lo]], id) {
		return int(r.sorted[lo])
	}
	return -1
}

// sortedByIdentity is the permutation of positions that itemIndex.sorted holds.
func sortedByIdentity(ids []object.Value) []int32 {
	sorted := make([]int32, len(ids))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int {
		if c := compareValues(ids[a], ids[b]); c != 0 {
			return c
		}
		return int(a - b)
	})
	return sorted
}
