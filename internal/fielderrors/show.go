package fielderrors

import (
	"encoding/json"

	"plinth/object"
)

// This file shows values in error messages as the reference shows them: as JSON of the Go value that it holds.

// Word is a text that the reference holds in a type of its own, an enum for one: it is shown as JSON, not quoted by Go.
type Word string

// shown is a value whose Go type has JSON names.
type shown struct {
	value object.Value
	order []string
}

// Show is a value as the reference shows it. order is the order of members of the outermost map, which is that of the
// Go type; members that it does not name come last, sorted.
func Show(v object.Value, order ...string) json.Marshaler { return shown{v, order} }

// MarshalJSON implements json.Marshaler.
func (s shown) MarshalJSON() ([]byte, error) { return AppendShown(nil, s.value, s.order), nil }

// AppendShown appends a value as Show shows it.
func AppendShown(dst []byte, v object.Value, order []string) []byte {
	if v.Kind() != object.Map || len(order) == 0 {
		return object.AppendJSON(dst, v)
	}
	dst = append(dst, '{')
	start := len(dst)
	put := func(key string, v object.Value) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, key), ':')
		dst = object.AppendJSON(dst, v)
	}
	for _, key := range order {
		if member, ok := v.Get(key); ok {
			put(key, member)
		}
	}
	for _, m := range v.Edit(nil, order...).Members() {
		put(m.Key, m.Value)
	}
	return append(dst, '}')
}

// ShowList is Show for a list of maps.
func ShowList(v object.Value, order []string) json.Marshaler { return shownList{v, order} }

type shownList shown

// MarshalJSON implements json.Marshaler.
func (s shownList) MarshalJSON() ([]byte, error) {
	dst := []byte{'['}
	for i, item := range s.value.Items() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendShown(dst, item, s.order)
	}
	return append(dst, ']'), nil
}
