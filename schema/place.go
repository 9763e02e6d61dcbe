package schema

import "strings"

// Has says whether the type has a place of this path, which is in the form of [Decoded.Unknown] and of the duplicates
// that package object reports. It tells the duplicates that the reference reports from those that it never sees,
// because they are in an unknown field or in untyped content of a built-in type. Of `{"spec": {"x": 1, "x": 2}}`
// the duplicate spec.x is told where spec has a field x; otherwise only that x is unknown.
//
// The keys of maps may hold dots and brackets themselves, so that all of what follows may be a key: it is taken for
// one.
func (t *Type) Has(path string) bool {
	if path == "" {
		return true
	}
	switch t.Kind {
	case Any:
		return t.golang == nil
	case Struct:
		name, rest := cutPath(path)
		f := t.Field(name)
		return f != nil && f.Type.Has(rest)
	case List:
		_, rest, isIndex := strings.Cut(path, "]")
		return isIndex && path[0] == '[' && t.Elem.Has(strings.TrimPrefix(rest, "."))
	case Map:
		return true
	}
	return false
}

// cutPath cuts a path at its first dot or bracket. A bracket belongs to the rest, a dot to nobody.
func cutPath(path string) (first, rest string) {
	at := strings.IndexAny(path, ".[")
	if at < 0 {
		return path, ""
	}
	return path[:at], strings.TrimPrefix(path[at:], ".")
}
