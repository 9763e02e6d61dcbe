package cel

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"plinth/object"
)

// Values are converted when an expression accesses them, one level at a time: an object becomes a pair of
// [object.Value] and shape, and its fields are converted on access. A value that does not fit its shape is an error of
// evaluation. That happens only if the schema changed after the object was stored.

// value converts a value of this shape.
func (s *shape) value(v object.Value) ref.Val {
	if v.IsNull() {
		if s.nullable {
			return types.NullValue
		}
		return types.NewErr("invalid data, got null for schema with nullable=false")
	}
	switch s.form {
	case object_, map_:
		if v.Kind() == object.Map {
			return &mapping{v, s}
		}
		return types.NewErr("invalid data, expected a map for the provided schema with type=object")
	case list, set, keyed:
		if v.Kind() != object.List {
			return types.NewErr("invalid data, expected an array for the provided schema with type=array")
		}
		switch plain := (sequence{v, s}); s.form {
		case set:
			return &setOf{sequence: plain}
		case keyed:
			return &keyedBy{sequence: plain}
		default:
			return &plain
		}
	case unknown:
		return &preserved{v}
	}
	return s.scalar(v)
}

func (s *shape) scalar(v object.Value) ref.Val {
	wants := ""
	switch s.form {
	case intOrString:
		switch v.Kind() {
		case object.String:
			return types.String(v.Str())
		case object.Int:
			return types.Int(v.Int())
		}
		return types.NewErr("invalid data, expected XIntOrString value to be either a string or integer")
	case integer:
		if v.Kind() == object.Int {
			return types.Int(v.Int())
		}
		wants = "int"
	case number:
		switch v.Kind() {
		case object.Int, object.Float, object.Number:
			return types.Double(v.Float())
		}
		wants = "float"
	case boolean:
		if v.Kind() == object.Bool {
			return types.Bool(v.Bool())
		}
		wants = "bool"
	default:
		if v.Kind() == object.String {
			return s.parse(v.Str())
		}
		wants = "string"
	}
	return types.NewErr("invalid data, expected %s, got %T", wants, v.Native())
}

// parse converts a string by its format.
func (s *shape) parse(in string) ref.Val {
	switch s.form {
	case duration:
		d, err := strfmt.ParseDuration(in)
		if err != nil {
			return types.NewErr("Invalid duration %s: %v", in, err)
		}
		return types.Duration{Duration: d}
	case date:
		t, err := time.Parse(strfmt.RFC3339FullDate, in)
		if err != nil {
			return types.NewErr("Invalid date formatted string %s: %v", in, err)
		}
		return types.Timestamp{Time: t}
	case dateTime:
		t, err := strfmt.ParseDateTime(in)
		if err != nil {
			return types.NewErr("Invalid date-time formatted string %s: %v", in, err)
		}
		return types.Timestamp{Time: time.Time(t)}
	case base64_:
		b, err := base64.URLEncoding.DecodeString(in) // URL encoding, as in the reference and unlike OpenAPI
		if err != nil {
			return types.NewErr("Invalid byte formatted string %s: %v", in, err)
		}
		return types.Bytes(b)
	}
	return types.String(in)
}

// preserved is a value that the schema does not describe. Expressions can compare it as a part of another value.
type preserved struct{ v object.Value }

func (p *preserved) ConvertToNative(to reflect.Type) (any, error) {
	return nil,
		fmt.Errorf("type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields", to)
}

func (p *preserved) ConvertToType(to ref.Type) ref.Val {
	return types.NewErr(
		"type conversion to '%s' not supported for values preserved by x-kubernetes-preserve-unknown-fields",
		to.TypeName())
}

func (p *preserved) Equal(other ref.Val) ref.Val {
	v, ok := raw(other)
	return types.Bool(ok && object.Equal(p.v, v))
}

func (p *preserved) Type() ref.Type { return types.UnknownType }

func (p *preserved) Value() any { return p.v }

// raw returns the value that a CEL value was converted from.
func raw(v ref.Val) (object.Value, bool) {
	switch v := v.Value().(type) {
	case object.Value:
		return v, true
	case string:
		return object.StringOf(v), true
	case int64:
		return object.IntOf(v), true
	case float64:
		return object.FloatOf(v), true
	case bool:
		return object.BoolOf(v), true
	}
	return object.Nil, false
}

// mapping is an object or a map.
type mapping struct {
	v object.Value
	s *shape
}

var _ traits.Mapper = (*mapping)(nil)

func (m *mapping) ConvertToNative(to reflect.Type) (any, error) {
	if to.Kind() == reflect.Map {
		return m.v.Native(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%s'", m.Type(), to)
}

func (m *mapping) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", m.Type(), to.TypeName())
}

func (m *mapping) Type() ref.Type { return types.MapType }

func (m *mapping) Value() any { return m.v }

func (m *mapping) Size() ref.Val { return types.Int(m.v.Len()) }

// member is the shape of the value of a key; nil if the schema does not describe it.
func (m *mapping) member(key string) *shape {
	if m.s.form == map_ {
		return m.s.elem
	}
	of, _ := m.s.field(key)
	return of
}

// Equal compares two mappings. Members that the schema does not describe are compared as stored values.
func (m *mapping) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if m.Size() != o.Size() {
		return types.False
	}
	for _, member := range m.v.Members() {
		if m.member(member.Key) == nil {
			same, ok := other.(*mapping)
			if !ok {
				return types.MaybeNoSuchOverloadErr(other)
			}
			if v, exists := same.v.Get(member.Key); exists && !object.Equal(member.Value, v) {
				return types.False
			}
			continue
		}
		key := types.String(member.Key)
		v, found := m.Find(key)
		w, exists := o.Find(key)
		if found != exists {
			return types.False
		}
		if !found {
			continue
		}
		if equal := v.Equal(w); equal != types.True {
			return equal
		}
	}
	return types.True
}

func (m *mapping) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && types.IsUnknownOrError(v) {
		return v
	}
	return types.Bool(found)
}

func (m *mapping) Get(key ref.Val) ref.Val {
	if v, found := m.Find(key); found {
		return v
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Find looks up a member.
func (m *mapping) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	name := string(k)
	if m.s.typed {
		if name, ok = unescape(name); !ok {
			return nil, false
		}
	}
	v, found := m.v.Get(name)
	if !found || m.s.typed && v.IsNull() {
		return nil, false
	}
	of := m.member(name)
	if of == nil {
		return nil, false
	}
	return of.value(v), true
}

// Iterator returns the keys that the schema describes, in order, and then nil for each other member. As in the
// reference: libraries expect as many keys as Size returns, and an expression that uses a nil key fails.
func (m *mapping) Iterator() traits.Iterator {
	keys := make([]ref.Val, 0, m.v.Len())
	for _, member := range m.v.Members() {
		if m.member(member.Key) == nil {
			continue
		}
		key := member.Key
		if m.s.typed {
			if escaped, ok := kube.Escape(key); ok {
				key = escaped
			}
		}
		keys = append(keys, types.String(key))
	}
	return &iterator{of: keys[:m.v.Len()]}
}

// iterator iterates over values.
type iterator struct {
	of []ref.Val
	at int
}

func (it *iterator) HasNext() ref.Val { return types.Bool(it.at < len(it.of)) }

func (it *iterator) Next() ref.Val {
	it.at++
	return it.of[it.at-1]
}

func (it *iterator) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion on iterators not supported")
}

func (it *iterator) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }
func (it *iterator) Equal(ref.Val) ref.Val          { return types.NewErr("no such overload") }
func (it *iterator) Type() ref.Type                 { return types.IteratorType }
func (it *iterator) Value() any                     { return nil }
