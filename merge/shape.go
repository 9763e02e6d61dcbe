package merge

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"plinth/object"
	"plinth/schema"
)

// shape is what a value is to a merge.
type shape uint8

const (
	leaf    shape = iota // replaced as a whole
	mapping              // members by name: structs and maps
	listing              // items
)

// deduced is the type of what no schema describes (SSA-9): maps are granular, lists atomic.
var deduced = &schema.Type{Kind: schema.Any}

// shapeOf says what a value of this type is. Where the type leaves that open the value decides, and null is a mapping.
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

// atomic says whether a mapping or listing of this type is owned as a whole (SSA-8).
func atomic(t *schema.Type, s shape) bool {
	if s == mapping {
		return t.AtomicMap
	}
	return t.Kind != schema.List || t.ListType == schema.Atomic
}

// memberType is the type of a member, and whether it is a declared field of a struct.
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
	case schema.Any: // a custom type may describe members without saying that there has to be a map
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

// identify finds out what tells an item of an associative list from the others: its value in a set, its key where the list
// has one, a map of the keys where it has several. Missing keys have their default (SSA-8).
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

// keyOf is the value of one key of an item.
func keyOf(t *schema.Type, item object.Value, name string) (object.Value, bool) {
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

// elementOf is the element of an item that is identified by id.
func elementOf(t *schema.Type, id object.Value) Element {
	switch {
	case t.ListType == schema.Set:
		return ItemElement(id)
	case len(t.ListKeys) == 1:
		return KeyElement(object.MapOf(object.Member{Key: t.ListKeys[0], Value: id}))
	}
	return KeyElement(id)
}

// roster is the identities of the items of a list.
type roster struct {
	ids    []object.Value // of each item
	sorted []int32        // indices into ids, by identity and then by position
	room   [smallList]object.Value
}

// rosters are used again: a walk through lists within lists needs as many at a time as these are deep.
var rosters = sync.Pool{New: func() any { return new(roster) }}

func newRoster() *roster { return rosters.Get().(*roster) }

// free gives the roster back. It holds on to nothing.
func (r *roster) free() {
	clear(r.room[:])
	r.ids, r.sorted = nil, nil
	rosters.Put(r)
}

// smallList is up to how many items are looked for one by one.
const smallList = 12

// enroll identifies all items. An item that cannot be identified is an error.
func (r *roster) enroll(t *schema.Type, items []object.Value) error {
	r.ids, r.sorted = r.room[:0], nil
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
	return nil
}

// first is the position of the first item of this identity, -1 if there is none.
func (r *roster) first(id object.Value) int {
	if r.sorted == nil {
		for i := range r.ids {
			if same(r.ids[i], id) {
				return i
			}
		}
		return -1
	}
	if at := r.lowest(id); at < len(r.sorted) && same(r.ids[r.sorted[at]], id) {
		return int(r.sorted[at])
	}
	return -1
}

// next is the position of the next item of the same identity as the one at i, -1 if it is the last.
func (r *roster) next(i int) int {
	if r.sorted == nil {
		for k := i + 1; k < len(r.ids); k++ {
			if same(r.ids[k], r.ids[i]) {
				return k
			}
		}
		return -1
	}
	for at := r.lowest(r.ids[i]); at < len(r.sorted) && same(r.ids[r.sorted[at]], r.ids[i]); at++ {
		if k := int(r.sorted[at]); k > i {
			return k
		}
	}
	return -1
}

// lowest is where the identities begin that are not below id.
func (r *roster) lowest(id object.Value) int {
	lo, hi := 0, len(r.sorted)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if compareValues(r.ids[r.sorted[mid]], id) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

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
