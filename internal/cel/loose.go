package cel

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"plinth/object"
)

// loose is a value without a schema, as expressions of admission see objects: by their JSON. Like a value with a shape
// it is converted one level at a time, since expressions look at few of the fields of an object. Members of maps are in
// the order of their keys; in the reference their order is by chance.
func loose(v object.Value) ref.Val {
	switch v.Kind() {
	case object.Bool:
		return types.Bool(v.Bool())
	case object.Int:
		return types.Int(v.Int())
	case object.Float, object.Number:
		return types.Double(v.Float())
	case object.String:
		return types.String(v.Str())
	case object.List:
		return looseList{v}
	case object.Map:
		return looseMap{v}
	}
	return types.NullValue
}

// whole is a value converted at once, by the library.
func whole(v object.Value) ref.Val { return types.DefaultTypeAdapter.NativeToValue(v.Native()) }

// looseMap is a map or an object.
type looseMap struct{ v object.Value }

var _ traits.Mapper = looseMap{}

func (m looseMap) ConvertToNative(to reflect.Type) (any, error) {
	return whole(m.v).ConvertToNative(to)
}
func (m looseMap) ConvertToType(to ref.Type) ref.Val { return whole(m.v).ConvertToType(to) }
func (m looseMap) Type() ref.Type                    { return types.MapType }
func (m looseMap) Value() any                        { return m.v.Native() }
func (m looseMap) Size() ref.Val                     { return types.Int(m.v.Len()) }
func (m looseMap) IsZeroValue() bool                 { return m.v.Len() == 0 }

// Equal is false for whatever cannot be compared, as in the reference.
func (m looseMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(looseMap); ok && object.Equal(m.v, o.v) {
		return types.True
	}
	o, ok := other.(traits.Mapper)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if m.Size() != o.Size() {
		return types.False
	}
	for _, member := range m.v.Members() {
		if v, found := o.Find(types.String(member.Key)); !found || loose(member.Value).Equal(v) != types.True {
			return types.False
		}
	}
	return types.True
}

func (m looseMap) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && types.IsError(v) {
		return v
	}
	return types.Bool(found)
}

func (m looseMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.ValOrErr(key, "unsupported map key type: %T", key), false
	}
	v, found := m.v.Get(string(name))
	if !found {
		return nil, false
	}
	return loose(v), true
}

func (m looseMap) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	switch {
	case found, v != nil && types.IsError(v):
		return v
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

func (m looseMap) Iterator() traits.Iterator {
	keys := make([]ref.Val, 0, m.v.Len())
	for _, member := range m.v.Members() {
		keys = append(keys, types.String(member.Key))
	}
	return &iterator{of: keys}
}

// looseList is a list.
type looseList struct{ v object.Value }

var _ traits.Lister = looseList{}

func (l looseList) ConvertToNative(to reflect.Type) (any, error) {
	return whole(l.v).ConvertToNative(to)
}
func (l looseList) ConvertToType(to ref.Type) ref.Val { return whole(l.v).ConvertToType(to) }
func (l looseList) Type() ref.Type                    { return types.ListType }
func (l looseList) Value() any                        { return l.v.Native() }
func (l looseList) Size() ref.Val                     { return types.Int(l.v.Len()) }
func (l looseList) IsZeroValue() bool                 { return l.v.Len() == 0 }

func (l looseList) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	for i, item := range l.v.Items() {
		if loose(item).Equal(o.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

func (l looseList) Contains(v ref.Val) ref.Val {
	for _, item := range l.v.Items() {
		if loose(item).Equal(v) == types.True {
			return types.True
		}
	}
	return types.False
}

func (l looseList) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, append(all(l), all(o)...))
}

func (l looseList) Get(index ref.Val) ref.Val {
	i, ok := index.(types.Int)
	if !ok {
		return types.ValOrErr(index, "unsupported index type: %T", index)
	}
	if i < 0 || int(i) >= l.v.Len() {
		return types.NewErr("index out of bounds: %d", i)
	}
	return loose(l.v.Items()[i])
}

func (l looseList) Iterator() traits.Iterator {
	items := make([]ref.Val, l.v.Len())
	for i, item := range l.v.Items() {
		items[i] = loose(item)
	}
	return &iterator{of: items}
}
