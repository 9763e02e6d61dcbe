package builtin

import (
	"strconv"
	"strings"

	"plinth/internal/store"
	"plinth/object"
)

// selectable is a field that lists and watches can be selected by (LIST-7).
type selectable struct {
	name string
	// path is the field that value reads; nil if value reads several, which are in paths.
	path []string
	// value returns the field of an object as text. If value is nil, the field is known but always empty, as in the
	// reference.
	value func(obj object.Value) string
	paths [][]string
}

// pathsOf are the paths that selected reads.
func pathsOf(fields []selectable) [][]string {
	paths := [][]string{}
	for _, f := range fields {
		if f.path != nil {
			paths = append(paths, f.path)
		}
		paths = append(paths, f.paths...)
	}
	return paths
}

// selected returns the values of the fields in obj, sorted by name as the fields are. For a null obj it returns the
// names alone.
func selected(fields []selectable, obj object.Value) []store.Pair {
	pairs := make([]store.Pair, 0, len(fields))
	for _, f := range fields {
		switch {
		case obj.IsNull():
			pairs = append(pairs, store.Pair{Name: f.name})
		case f.value != nil:
			pairs = append(pairs, store.Pair{Name: f.name, Value: f.value(obj)})
		}
	}
	return pairs
}

// text is a selectable field that holds text. The path is that of the name, unless another one is given.
func text(name string, path ...string) selectable {
	path = pathOf(name, path)
	return selectable{name: name, path: path, value: func(obj object.Value) string { return obj.At(path...).Str() }}
}

// number is a selectable field that holds an integer; an absent one is 0.
func number(name string, path ...string) selectable {
	path = pathOf(name, path)
	return selectable{name: name, path: path, value: func(obj object.Value) string {
		return strconv.FormatInt(obj.At(path...).Int(), 10)
	}}
}

// truth is a selectable field that holds a boolean; an absent one is false.
func truth(name string, path ...string) selectable {
	path = pathOf(name, path)
	return selectable{name: name, path: path, value: func(obj object.Value) string {
		return strconv.FormatBool(obj.At(path...).Bool())
	}}
}

func pathOf(name string, path []string) []string {
	if path == nil {
		return strings.Split(name, ".")
	}
	return path
}
