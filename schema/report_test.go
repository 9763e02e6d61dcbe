package schema

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// allocated is the number of bytes that a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// threeThousand is 3,000 items, each made from its index.
func threeThousand(format string) string {
	var b strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&b, format, i)
		b.WriteByte(',')
	}
	return strings.TrimSuffix(b.String(), ",")
}

// The client chooses the keys of maps, and the number of wrong values below them. Printing a path for each of 3,000
// errors below a key of 60 kB turns a hundred kilobytes into a few hundred megabytes.
// SPEC: WRITE-6
func TestLongPathsArePrintedSeldom(t *testing.T) {
	typ, err := Structural(parsed(t, `
type: object
properties:
  map:
    type: object
    additionalProperties:
      type: object
      properties:
        "n": {type: array, items: {type: integer, maximum: 5}}
        enum: {type: array, items: {type: string, enum: [a, b]}}
        set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
        byKey: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, properties: {k: {type: string}}}}
        closed: {type: object, additionalProperties: false}
        required: {type: array, items: {type: object, required: [a]}}
        any: {type: array, items: {anyOf: [{type: integer}, {type: string}], type: string}}
        one: {type: array, items: {oneOf: [{minimum: 3}, {maximum: 4}], type: integer}}
        all: {type: array, items: {allOf: [{minimum: 3}], type: integer}}
        not: {type: array, items: {not: {minimum: 3}, type: integer}}
        factor: {type: array, items: {type: number, multipleOf: 0}}
        small: {type: array, items: {type: integer, format: int32}}
        templates: {type: array, items: {type: object, x-kubernetes-embedded-resource: true}}
        template: {type: object, x-kubernetes-embedded-resource: true}
`), StructuralOptions{
		Metadata: FromGo(metadataType, nil),
		Inspect: func(metadata object.Value, path *field.Path) (errs field.ErrorList) {
			for _, m := range metadata.At("labels").Members() {
				errs = append(errs, field.Invalid(path.Child("labels"), m.Key, "bad"))
			}
			return errs
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	review := FromGo(reflect.TypeFor[authorizationv1.SubjectAccessReview](), nil)
	key := strings.Repeat("k", 60_000)
	for _, c := range []struct {
		name, below string
		t           *Type
	}{
		{"numbers out of range", `"n":[` + threeThousand("%d") + `]`, typ},
		{"values of another type", `"n":[` + threeThousand(`"%d"`) + `]`, typ},
		{"values that are not listed", `"enum":[` + threeThousand(`"%d"`) + `]`, typ},
		{"items twice", `"set":[` + threeThousand(`"%d"`) + `,` + threeThousand(`"%d"`) + `]`, typ},
		{"keys twice", `"byKey":[` + threeThousand(`{"k":"%d"}`) + `,` + threeThousand(`{"k":"%d"}`) + `]`, typ},
		{"members that are forbidden", `"closed":{` + threeThousand(`"%d":1`) + `}`, typ},
		{"members that are missing", `"required":[` + threeThousand(`{"b":%d}`) + `]`, typ},
		{"valid by the second branch", `"any":[` + threeThousand(`"%d"`) + `]`, typ},
		{"valid by no branch", `"any":[` + threeThousand(`[%d]`) + `]`, typ},
		{"valid by two branches", `"one":[` + threeThousand(`3,%d`) + `]`, typ},
		{"not all branches", `"all":[` + threeThousand(`-%d`) + `]`, typ},
		{"what must not be", `"not":[` + threeThousand(`9%d`) + `]`, typ},
		{"what is not as it must not be", `"not":[` + threeThousand(`-%d`) + `]`, typ},
		{"factors", `"factor":[` + threeThousand(`1.%d`) + `]`, typ},
		{"large numbers", `"small":[` + threeThousand(`1%0.10d`) + `]`, typ},
		{"embedded objects", `"templates":[` + threeThousand(`{"kind":%d}`) + `]`, typ},
		{"embedded labels", `"template":{"metadata":{"labels":{` + threeThousand(`"%d":""`) + `}}}`, typ},
		{"unknown fields", threeThousand(`"%d":1`), typ},
		{"unknown fields of embedded metadata", `"templates":[` + threeThousand(`{"metadata":{"x%d":1}}`) + `]`, typ},
		{"a built-in type", threeThousand(`%d`), review},
	} {
		in := `{"map":{"` + key + `":{` + c.below + `}}}`
		if c.t == review {
			in = `{"spec":{"extra":{"` + key + `":[` + c.below + `]}}}`
		}
		v := parsedJSON(t, in)
		limit := uint64(20<<20 + 50*len(in))
		if n := allocated(func() {
			decoded, err := c.t.Decode(v)
			if c.t == review && err == nil {
				t.Errorf("%s: no error", c.name)
			}
			if err == nil {
				v = decoded.Value
			}
			size := 0
			for _, path := range decoded.Unknown {
				size += len(path)
			}
			if size > 2*maxReported {
				t.Errorf("%s: %d bytes of paths of unknown fields", c.name, size)
			}
		}); n > limit {
			t.Errorf("%s: decoding %d bytes allocates %d", c.name, len(in), n)
		}
		if c.t == review {
			continue
		}
		if n := allocated(func() { c.t.Validate(v, object.Nil, nil) }); n > limit {
			t.Errorf("%s: validating %d bytes allocates %d", c.name, len(in), n)
		}
	}
}
