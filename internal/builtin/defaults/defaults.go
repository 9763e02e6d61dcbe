// Package defaults fills in what the reference fills in for built-in types: one exported function a kind, small
// functions below it, named after the field or the part they default.
//
// The functions are pure. They take an object as package schema has decoded it — non-pointer structs there even when
// empty, nil pointers absent, nil lists without omitempty null — and give the same form. They do everything that the
// reference does for the kind, the +default markers of its types included, because some rules build on what a marker
// has filled in. Feature gates have their default state of the release.
//
// Subtrees in which nothing changes are shared with the input; an object that has all its defaults comes back as it is,
// without an allocation.
//
// What the reference does only to absent fields is done to null as well, what it does to empty ones ("", 0, empty
// lists) to absent and empty ones: a pointer to zero is a value that somebody has set, a zero without pointer is not.
package defaults

import (
	"plinth/object"
)

// Values that are filled in in several places.
var (
	emptyMap = object.MapOf()
	zero     = object.IntOf(0)
	one      = object.IntOf(1)
	no       = object.BoolOf(false)
	yes      = object.BoolOf(true)
)
