package schema

import "strings"

// Has says whether the type has a place of this path, which is in the form of [Decoded.Unknown] and of the duplicates
// that package object reports.
//
// The problem: the parser (package object) finds duplicate members before any type is known, in all of the text. The
// reference finds them while it decodes into a Go struct, and so never sees those in an unknown field, which it skips,
// nor those in untyped content (RawExtension), which it keeps as text. Reporting all of them would refuse, under strict
// field validation, a request that the reference accepts. So each duplicate is reported only if its place exists in the
// type:
//
//	path of the duplicate           type                  reported
//	spec.replicas                   Deployment            yes
//	spec.x                          Deployment            no: only that x is unknown
//	spec.ports[0].port              Service               yes
//	metadata.labels.a.b/c           any                   yes: labels is a map, a.b/c is one of its keys
//	data.x                          ControllerRevision    no: data is untyped content, kept as text
//
// Has walks path and type in parallel and needs no value: an index of a list is only skipped, as all items have one
// type. A path is ambiguous where a map is passed, since its keys may contain dots and brackets themselves. The rest of
// the path is then taken for one key, which always exists. A duplicate below such a map, in labels.a.b where a were an
// object, would be reported even if the type of the values has no b; this errs on the side of reporting.
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

// cutPath cuts a path at its first dot or bracket. A bracket is kept in the rest, a dot in neither part.
func cutPath(path string) (first, rest string) {
	at := strings.IndexAny(path, ".[")
	if at < 0 {
		return path, ""
	}
	return path[:at], strings.TrimPrefix(path[at:], ".")
}
