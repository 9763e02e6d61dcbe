package crd

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"plinth/internal/store"
	"plinth/object"
)

// selectableOf returns the function that lists the selectable fields of custom objects with their values, sorted by
// name (LIST-7, engine.Reading.Fields). If the definition has none the function returns an empty list; as in the
// reference metadata.namespace cannot be selected then in types that are not namespaced.
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
			if err != nil { // cannot happen: the definition was validated
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

// selectablePaths are the paths that selectableOf reads; nil if one of them is more than the names of members.
func selectablePaths(version object.Value) [][]string {
	paths := [][]string{}
	for _, f := range version.At("selectableFields").Items() {
		text := f.At("jsonPath").Str()
		if !plainPath(text) {
			return nil
		}
		paths = append(paths, strings.Split(text[1:], "."))
	}
	return paths
}

// unknownField is the error for a field that cannot be selected (engine.Reading.UnknownField).
func unknownField(name string) string { return "field label not supported: " + name }
