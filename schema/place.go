package schema

import "strings"

// Has says whether the type has a place of this path, which is in the form of [Decoded.Unknown] and of the duplicates
// that package object reports. It tells the duplicates that the reference reports from those that it never sees, because
// they are in an unknown field or in untyped content of a built-in type.
//
// The keys of maps may hold dots and brackets themselves: a path is taken for one of the type if it can be.
func (t *Type) Has(path string) bool {
	if path == "" {
		return true
	}
	switch t.Kind {
	case Any:
		return t.golang == nil
	case Struct:
		name, rest := cutPath(path, 0)
		f := t.Field(name)
		return f != nil && f.Type.Has(rest)
	case List:
		index, rest := cutPath(path, 1)
		return strings.HasPrefix(index, "[") && t.Elem.Has(rest)
	case Map:
		if t.Elem.Kind != Struct && t.Elem.Kind != List && t.Elem.Kind != Map {
			return true
		}
		for from := 0; ; {
			key, rest := cutPath(path, from)
			if t.Elem.Has(rest) {
				return true
			}
			if from = len(key) + 1; from > len(path) {
				return false
			}
		}
	}
	return false
}

// cutPath cuts a path at its first dot or bracket from an offset on. A bracket belongs to the rest, a dot to nobody.
func cutPath(path string, from int) (first, rest string) {
	at := strings.IndexAny(path[from:], ".[")
	if at < 0 {
		return path, ""
	}
	at += from
	return path[:at], strings.TrimPrefix(path[at:], ".")
}
