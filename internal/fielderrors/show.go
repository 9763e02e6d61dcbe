package fielderrors

import (
	"encoding/json"

	"plinth/object"
)

// This file prints values in error messages as the reference does: as the JSON of the Go value.

// Word is a string that has a named type in the reference, such as an enum: it is printed as JSON, and not quoted as a
// Go string.
type Word string

// shown is a value whose Go type has JSON names.
type shown struct {
	value object.Value
	order []string
}

// Show returns a value that is printed as in the reference. order is the order of the members of the outermost map:
// that of the fields of the Go type. Other members come last, sorted. It prints when the error is formatted, and not
// before.
func Show(v object.Value, order ...string) json.Marshaler { return shown{v, order} }

// MarshalJSON implements json.Marshaler.
func (s shown) MarshalJSON() ([]byte, error) { return AppendShown(nil, s.value, s.order), nil }

// AppendShown appends the text that Show prints.
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
