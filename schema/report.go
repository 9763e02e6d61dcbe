package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// maxReported bounds the text that each reporting part (unknown fields, the schema, embedded objects, lists) may report
// about one object. It counts paths, messages and the invalid values. A million items can each be invalid, one invalid
// string can be long, and the author of the object decides how long the keys in a path are.
//
// Text that is created and thrown away costs as much as text that is reported. With a path per error, an object of 3 MB
// of which half is one key, and the rest invalid items below it, would create terabytes of text. So the first error
// that does not fit is the last one that is created: the code that finds an error first checks whether it will be
// reported.
//
// Whether the object is valid does not depend on the bound: the first error is always reported, whatever its length.
const maxReported = 1 << 20

// reporter collects errors, up to maxReported. Invariant: full ⇒ len(errs) > 0.
type reporter struct {
	errs field.ErrorList
	size int  // of their text
	full bool // no further error is reported
}

// report adds an error, unless that would exceed maxReported.
func (r *reporter) report(err *field.Error) {
	size := len(err.Field) + len(err.Detail) + badSize(err.BadValue)
	if r.full = r.full || r.size > 0 && r.size+size > maxReported; r.full {
		return
	}
	r.size += size
	r.errs = append(r.errs, err)
}

// badSize is the approximate length of a value in an error.
func badSize(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case shown:
		return len(object.AppendJSON(nil, v.value))
	}
	return 16
}
