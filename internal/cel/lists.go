package cel

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"plinth/object"
)

// sequence is a list with an order (type atomic).
type sequence struct {
	v object.Value
	s *shape
}

var _ traits.Lister = (*sequence)(nil)

func (l *sequence) ConvertToNative(to reflect.Type) (any, error) {
	if to.Kind() != reflect.Slice {
		return nil, fmt.Errorf("type conversion error from '%s' to '%s'", l.Type(), to)
	}
	if l.s.listOf != "string" {
		return l.v.Native(), nil
	}
	var out []string
	for _, item := range l.v.Items() {
		if item.Kind() != object.String {
			return nil, fmt.Errorf("expected all elements to be of type string, but got %T", item.Native())
		}
		out = append(out, item.Str())
	}
	return out, nil
}

func (l *sequence) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", l.Type(), to.TypeName())
}

func (l *sequence) Type() ref.Type { return types.ListType }

func (l *sequence) Value() any { return l.v }

func (l *sequence) Size() ref.Val { return types.Int(l.v.Len()) }

func (l *sequence) Get(index ref.Val) ref.Val {
	i, ok := index.(types.Int)
	if !ok {
		return types.ValOrErr(index, "unsupported index: %v", index)
	}
	if i < 0 || int(i) >= l.v.Len() {
		return types.NewErr("index out of bounds: %v", index)
	}
	return l.s.elem.value(l.v.Items()[i])
}

func (l *sequence) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	for i, item := range l.v.Items() {
		if equal := l.s.elem.value(item).Equal(o.Get(types.Int(i))); equal != types.True {
			return equal
		}
	}
	return types.True
}

func (l *sequence) Contains(v ref.Val) ref.Val {
	if types.IsUnknownOrError(v) {
		return v
	}
	var failed ref.Val
	for _, item := range l.v.Items() {
		equal := l.s.elem.value(item).Equal(v)
		if equal == types.True {
			return types.True
		}
		if _, ok := equal.(types.Bool); !ok && failed == nil {
			failed = types.MaybeNoSuchOverloadErr(equal)
		}
	}
	if failed != nil {
		return failed
	}
	return types.False
}

func (l *sequence) items() []ref.Val {
	items := make([]ref.Val, l.v.Len())
	for i, item := range l.v.Items() {
		items[i] = l.s.elem.value(item)
	}
	return items
}

func (l *sequence) Iterator() traits.Iterator { return &iterator{of: l.items()} }

func (l *sequence) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, append(l.items(), all(o)...))
}

// all returns the items of a list.
func all(l traits.Lister) []ref.Val {
	size, _ := l.Size().(types.Int)
	items := make([]ref.Val, 0, size)
	for it := l.Iterator(); it.HasNext() == types.True; {
		items = append(items, it.Next())
	}
	return items
}

// Lists of type set and map are compared without order, and + of two is their union. In a union, items of both lists
// stay at their place in the left one. For lists of type map the right item replaces the left one with the same keys.
// Other items of the right list are appended. The union is such a list again. Items are matched by setIdentity and
// keyIdentity.

// setOf is a list of type set.
type setOf struct{ sequence }

func (l *setOf) Add(other ref.Val) ref.Val   { return union(l, other, nil) }
func (l *setOf) Equal(other ref.Val) ref.Val { return equalSets(l, other) }

// keyedBy is a list of type map.
type keyedBy struct{ sequence }

func (l *keyedBy) Add(other ref.Val) ref.Val { return union(l, other, l.s.keys) }

// Equal matches items by their members with the escaped names of the keys. As in the reference, a key whose name has
// to be escaped is therefore never found. If a list has only such keys, all of its items have the same identity, and
// two lists are equal only if they have at most one item.
func (l *keyedBy) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	items := l.v.Items()
	mine := make(map[any]int, len(items))
	for i, item := range items {
		mine[storedIdentity(item, l.s.keys)] = i
	}
	seen := make(map[any]bool, len(mine))
	for it := o.Iterator(); it.HasNext() == types.True; {
		theirs := it.Next()
		v, _ := theirs.Value().(object.Value)
		id := storedIdentity(v, l.s.keys)
		i, found := mine[id]
		if !found {
			return types.False
		}
		if equal := l.s.elem.value(items[i]).Equal(theirs); equal != types.True {
			return equal
		}
		seen[id] = true
	}
	return types.Bool(len(seen) == len(mine))
}

// unionList is the union of two lists of type set or map.
type unionList struct {
	traits.Lister
	keys []string // nil: a set
}

func (l *unionList) Add(other ref.Val) ref.Val { return union(l.Lister, other, l.keys) }

func (l *unionList) Equal(other ref.Val) ref.Val {
	if l.keys == nil {
		return equalSets(l.Lister, other)
	}
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	mine := map[any]ref.Val{}
	for _, item := range all(l.Lister) {
		mine[keyIdentity(item, l.keys)] = item
	}
	seen := make(map[any]bool, len(mine))
	for it := o.Iterator(); it.HasNext() == types.True; {
		theirs := it.Next()
		id := keyIdentity(theirs, l.keys)
		item, found := mine[id]
		if !found {
			return types.False
		}
		if equal := item.Equal(theirs); equal != types.True {
			return equal
		}
		seen[id] = true
	}
	return types.Bool(len(seen) == len(mine))
}

// union returns the union of two lists: of type map if keys is not nil, else of type set.
func union(left traits.Lister, other ref.Val, keys []string) ref.Val {
	right, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	items := all(left)
	places := make(map[any]int, len(items))
	for i, item := range items {
		id, err := identity(item, keys)
		if err != nil {
			return err
		}
		places[id] = i
	}
	for it := right.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		id, err := identity(item, keys)
		if err != nil {
			return err
		}
		switch i, found := places[id]; {
		case !found && keys == nil:
			places[id] = len(items)
			items = append(items, item)
		case !found:
			items = append(items, item)
		case keys != nil:
			items[i] = item
		}
	}
	return &unionList{types.NewRefValList(types.DefaultTypeAdapter, items), keys}
}

func equalSets(left traits.Lister, other ref.Val) ref.Val {
	right, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if left.Size() != right.Size() {
		return types.False
	}
	mine := map[any]bool{}
	for _, item := range all(left) {
		id, err := setIdentity(item)
		if err != nil {
			return err
		}
		mine[id] = true
	}
	seen := make(map[any]bool, len(mine))
	for it := right.Iterator(); it.HasNext() == types.True; {
		id, err := setIdentity(it.Next())
		if err != nil {
			return err
		}
		if !mine[id] {
			return types.False
		}
		seen[id] = true
	}
	return types.Bool(len(seen) == len(mine))
}

func identity(item ref.Val, keys []string) (any, ref.Val) {
	if keys == nil {
		return setIdentity(item)
	}
	return keyIdentity(item, keys), nil
}

// setIdentity identifies an item of a set.
func setIdentity(item ref.Val) (any, ref.Val) {
	switch item.(type) {
	case traits.Lister, traits.Mapper:
		return nil, types.NewErr("listSet operations are only supported on lists of scalar values")
	}
	return comparable_(item.Value()), nil
}

// comparable_ converts a value to a key of a Go map. A value of a type that is not comparable is printed.
func comparable_(v any) any {
	if v != nil && !reflect.TypeOf(v).Comparable() {
		return fmt.Sprintf("%#v", v)
	}
	return v
}

// keyIdentity identifies an item of a list of type map: the values of its keys as expressions see them.
func keyIdentity(item ref.Val, keys []string) any {
	return joined(keys, func(key string) any {
		m, ok := item.(traits.Mapper)
		if !ok {
			return nil
		}
		v, found := m.Find(types.String(key))
		if !found || v == nil || types.IsUnknownOrError(v) {
			return nil
		}
		return comparable_(v.Value())
	})
}

// storedIdentity identifies an item by the stored values of its keys. An item that is not an object is equal to no
// item, not even to itself.
func storedIdentity(item object.Value, keys []string) any {
	if item.Kind() != object.Map {
		return new(byte)
	}
	return joined(keys, func(key string) any {
		v, _ := item.Get(key)
		return scalar(v)
	})
}

// scalar converts a scalar to a Go value; others to nil.
func scalar(v object.Value) any {
	switch v.Kind() {
	case object.List, object.Map:
		return nil
	}
	return v.Native()
}

// joined combines the values of several keys to one key of a Go map.
func joined(keys []string, of func(string) any) any {
	if len(keys) == 1 {
		return of(keys[0])
	}
	parts := make([]any, len(keys))
	for i, key := range keys {
		parts[i] = of(key)
	}
	return fmt.Sprintf("%#v", parts)
}
