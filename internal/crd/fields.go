package crd

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"plinth/internal/store"
	"plinth/object"
)

// selectableOf lists the selectable fields of the custom objects of a version, with their values in an object, sorted
// by name (LIST-7): what engine.Reading.Fields does. It lists none, but is there, where the definition names none:
// objects in no namespace cannot be selected by it then either.
func selectableOf(version object.Value) func(obj object.Value) []store.Pair {
	given := version.At("selectableFields").Items()
	if len(given) == 0 {
		return func(object.Value) []store.Pair { return []store.Pair{} }
	}
	type selectable struct {
		name string
		path *jsonPath
	}
	fields := sync.OnceValue(func() []selectable {
		list := make([]selectable, 0, len(given))
		for _, f := range given {
			text := f.At("jsonPath").Str()
			path, err := parseJSONPath(text)
			if err != nil { // validation lets none in
				path = nil
			}
			list = append(list, selectable{strings.TrimPrefix(text, "."), path})
		}
		slices.SortFunc(list, func(a, b selectable) int { return strings.Compare(a.name, b.name) })
		return list
	})
	return func(obj object.Value) []store.Pair {
		pairs := make([]store.Pair, 0, len(given))
		for _, f := range fields() {
			value := ""
			if f.path != nil {
				if v, ok := f.path.first(obj); ok && !v.IsNull() {
					value = fmt.Sprint(v.Native())
				}
			}
			pairs = append(pairs, store.Pair{Name: f.name, Value: value})
		}
		return pairs
	}
}

// unknownField words that custom objects cannot be selected by a field (engine.Reading.UnknownField).
func unknownField(name string) string { return "field label not supported: " + name }
