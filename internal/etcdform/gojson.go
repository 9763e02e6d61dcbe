package etcdform

import (
	"bytes"
	"encoding/json"
	"sync"

	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// appendGo appends an object as Go's encoding prints it: the members of structs in the order in which their Go types
// declare them, those of maps in the order of names. The object has been decoded by the type, so it has the members
// that Go writes, and no others.
func appendGo(dst []byte, v object.Value, t *schema.Type) []byte {
	switch {
	case v.Kind() == object.Map && t.Either != nil:
		return appendGo(dst, v, t.Either.Object)
	case v.Kind() == object.List && t.Either != nil && t.Either.Other.Kind == schema.List:
		return appendGo(dst, v, t.Either.Other)
	case v.Kind() == object.Map && t.Kind == schema.Struct:
		dst = append(dst, '{')
		start := len(dst)
		for _, at := range goOrder(t) {
			f := &t.Fields[at]
			if value, ok := v.Get(f.Name); ok {
				dst = appendGo(appendKey(dst, start, f.Name), value, f.Type)
			}
		}
		return append(dst, '}')
	case v.Kind() == object.Map && t.Kind == schema.Map:
		dst = append(dst, '{')
		start := len(dst)
		for _, m := range v.Members() {
			dst = appendGo(appendKey(dst, start, m.Key), m.Value, t.Elem)
		}
		return append(dst, '}')
	case v.Kind() == object.List && t.Kind == schema.List:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendGo(dst, item, t.Elem)
		}
		return append(dst, ']')
	case t.Kind == schema.Any && t.GoName == "FieldsV1":
		var text bytes.Buffer
		json.HTMLEscape(&text, merge.AppendFieldsText(nil, object.AppendJSON(nil, v)))
		return append(dst, text.Bytes()...)
	}
	return object.AppendJSON(dst, v)
}

// appendKey appends a key and a colon, and a comma before them unless they are the first after start.
func appendKey(dst []byte, start int, key string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return append(object.AppendString(dst, key), ':')
}

// orders keeps the results of schema.Type.GoOrder.
var orders sync.Map // *schema.Type → []int

func goOrder(t *schema.Type) []int {
	if order, ok := orders.Load(t); ok {
		return order.([]int)
	}
	order, _ := orders.LoadOrStore(t, t.GoOrder())
	return order.([]int)
}
