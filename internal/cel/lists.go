package cel

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"plinth/object"
)

// sequence is a list whose order counts.
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

// all is what a list holds.
func all(l traits.Lister) []ref.Val {
	size, _ := l.Size().(types.Int)
	items := make([]ref.Val, 0, size)
	for it := l.Iterator(); it.HasNext() == types.True; {
		items = append(items, it.Next())
	}
	return items
}

// Lists of type set and map have no order when they are compared, and `+` of them is a union: what is in both stays at
// its place, of objects with the same keys the right one wins, and what is new comes behind. The sum is such a list
// again. Both rules go by an identity of the items: see setIdentity and keyIdentity.

// setOf is a list of type set.
type setOf struct{ sequence }

func (l *setOf) Add(other ref.Val) ref.Val   { return union(l, other, nil) }
func (l *setOf) Equal(other ref.Val) ref.Val { return equalSets(l, other) }

// keyedBy is a list of type map.
type keyedBy struct{ sequence }

func (l *keyedBy) Add(other ref.Val) ref.Val { return union(l, other, l.s.keys) }

// Equal compares items by what is stored under the escaped names of the keys, so that a key that needs escaping is
// never found: items of such a list are all the same to it, and it is equal to another one only if it has a single
// item. The reference does so.
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
		i, there := mine[id]
		if !there {
			return types.False
		}
		if equal := l.s.elem.value(items[i]).Equal(theirs); equal != types.True {
			return equal
		}
		seen[id] = true
	}
	return types.Bool(len(seen) == len(mine))
}

// sum is a list that two lists of type set or map have been joined to.
type sum struct {
	traits.Lister
	keys []string // nil: a set
}

func (l *sum) Add(other ref.Val) ref.Val { return union(l.Lister, other, l.keys) }

func (l *sum) Equal(other ref.Val) ref.Val {
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
		item, there := mine[id]
		if !there {
			return types.False
		}
		if equal := item.Equal(theirs); equal != types.True {
			return equal
		}
		seen[id] = true
	}
	return types.Bool(len(seen) == len(mine))
}

// union joins lists: of type map where there are keys, else of type set.
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
		switch i, there := places[id]; {
		case !there && keys == nil:
			places[id] = len(items)
			items = append(items, item)
		case !there:
			items = append(items, item)
		case keys != nil:
			items[i] = item
		}
	}
	return &sum{types.NewRefValList(types.DefaultTypeAdapter, items), keys}
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

// setIdentity is what tells items of a set apart.
func setIdentity(item ref.Val) (any, ref.Val) {
	switch item.(type) {
	case traits.Lister, traits.Mapper:
		return nil, types.NewErr("listSet operations are only supported on lists of scalar values")
	}
	return comparable_(item.Value()), nil
}

// comparable_ is a value as a key of a Go map. What cannot be one is printed with its type.
func comparable_(v any) any {
	if v != nil && !reflect.TypeOf(v).Comparable() {
		return fmt.Sprintf("%#v", v)
	}
	return v
}

// keyIdentity is what tells objects of a list of type map apart: the values of its keys, as expressions see them.
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

// storedIdentity is the same of an object as it is stored. What is no object is not even the same as itself.
func storedIdentity(item object.Value, keys []string) any {
	if item.Kind() != object.Map {
		return new(byte)
	}
	return joined(keys, func(key string) any {
		v, _ := item.Get(key)
		return scalar(v)
	})
}

// scalar is a scalar of Go; nil for everything else.
func scalar(v object.Value) any {
	switch v.Kind() {
	case object.List, object.Map:
		return nil
	}
	return v.Native()
}

// joined makes one key of a Go map of several.
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
