package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// maxReported bounds the text of what is reported of one object by each of the parts that report something: unknown
// fields, the schema, embedded objects, lists. It counts paths, messages and the values that are wrong. A million items
// can each be wrong, one string that is wrong can be long, and the keys in a path are as long as whoever writes the
// object likes.
//
// Text that is made and thrown away costs as much as text that is reported. With a path per error, an object of 3 MB of
// which half is one key, and the rest items below it that are wrong, makes terabytes. So the first error that does not
// fit is the last one that is made: whoever finds an error first asks whether it will be reported.
//
// The verdict does not depend on what is reported: the first error always is, whatever its length.
const maxReported = 1 << 20

// reporter collects errors, up to maxReported. Invariant: full ⇒ len(errs) > 0.
type reporter struct {
	errs field.ErrorList
	size int  // of their text
	full bool // nothing more is reported
}

// report adds an error, unless that would go beyond maxReported.
func (r *reporter) report(err *field.Error) {
	size := len(err.Field) + len(err.Detail) + badSize(err.BadValue)
	if r.full = r.full || r.size > 0 && r.size+size > maxReported; r.full {
		return
	}
	r.size += size
	r.errs = append(r.errs, err)
}

// badSize is about how long a value is in an error.
func badSize(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case shown:
		return len(object.AppendJSON(nil, v.value))
	}
	return 16
}
