package validation

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// faults collects what rules find.
type faults struct {
	root *field.Path // where the nil place is; nil: at the object
	list field.ErrorList
}

// path is a place in words.
func (f *faults) path(p *place) *field.Path {
	var text []byte
	if f.root != nil {
		text = append(text, f.root.String()...)
	}
	return field.NewPath(string(p.appendTo(text)))
}

func (f *faults) invalid(p *place, value any, detail string) {
	f.list = append(f.list, field.Invalid(f.path(p), value, detail))
}

// each is invalid with every one of some details.
//
// It takes a string, because an interface would be allocated before anybody knows whether there is a fault.
func (f *faults) each(p *place, value string, details []string) {
	for _, detail := range details {
		f.invalid(p, value, detail)
	}
}

func (f *faults) required(p *place, detail string) {
	f.list = append(f.list, field.Required(f.path(p), detail))
}

func (f *faults) forbidden(p *place, detail string) {
	f.list = append(f.list, field.Forbidden(f.path(p), detail))
}

func (f *faults) duplicate(p *place, value any) {
	f.list = append(f.list, field.Duplicate(f.path(p), value))
}

func (f *faults) unsupported(p *place, value string, supported []string) {
	f.list = append(f.list, field.NotSupported(f.path(p), word(value), supported))
}

func (f *faults) notFound(p *place, value any) {
	f.list = append(f.list, field.NotFound(f.path(p), value))
}

func (f *faults) tooLong(p *place, limit int) {
	f.list = append(f.list, field.TooLong(f.path(p), "", limit))
}

func (f *faults) tooMany(p *place, have, limit int) {
	f.list = append(f.list, field.TooMany(f.path(p), have, limit))
}

// word is a text that the reference holds in a type of its own, an enum for one: it is shown as JSON, not quoted by Go.
type word string

// shown is a value in an error message, as JSON. order is the order of members of the outermost map, which is that of
// the Go type in the reference; members that it does not name come last, sorted.
type shown struct {
	value object.Value
	order []string
}

func show(v object.Value, order ...string) json.Marshaler { return shown{v, order} }

// MarshalJSON implements json.Marshaler.
func (s shown) MarshalJSON() ([]byte, error) {
	if s.value.Kind() != object.Map || len(s.order) == 0 {
		return object.AppendJSON(nil, s.value), nil
	}
	dst := []byte{'{'}
	put := func(key string, v object.Value) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, key), ':')
		dst = object.AppendJSON(dst, v)
	}
	rest := s.value.Edit(nil, s.order...)
	for _, key := range s.order {
		if v, ok := s.value.Get(key); ok {
			put(key, v)
		}
	}
	for _, m := range rest.Members() {
		put(m.Key, m.Value)
	}
	return append(dst, '}'), nil
}

// showList is show for a list of maps.
func showList(v object.Value, order []string) json.Marshaler { return shownList{v, order} }

type shownList shown

// MarshalJSON implements json.Marshaler.
func (s shownList) MarshalJSON() ([]byte, error) {
	dst := []byte{'['}
	for i, item := range s.value.Items() {
		if i > 0 {
			dst = append(dst, ',')
		}
		text, err := shown{item, s.order}.MarshalJSON()
		if err != nil {
			return nil, err
		}
		dst = append(dst, text...)
	}
	return append(dst, ']'), nil
}
