// Package defaults sets the default values of built-in types, as the reference does: one exported function per kind,
// and below it small functions, each named after the field or part that it sets.
//
// The functions are pure. They take and return an object in the form in which package schema decodes it: structs that
// are not pointers are present even when empty, nil pointers are absent, nil lists without omitempty are null. They set
// all defaults of the reference for the kind, including those of +default markers, because some defaults depend on
// these. Feature gates have the default state of the release.
//
// Unchanged subtrees are shared with the input; an object that has all its defaults is returned without an allocation.
//
// A default for a pointer is set if the field is absent or null: a pointer to zero is a value that a client has set. A
// default for any other field is set if it is absent, null or empty ("", 0, an empty list).
package defaults

import (
	"plinth/object"
)

// Defaults that several fields have.
var (
	emptyMap = object.MapOf()
	zero     = object.IntOf(0)
	one      = object.IntOf(1)
	no       = object.BoolOf(false)
	yes      = object.BoolOf(true)
)
