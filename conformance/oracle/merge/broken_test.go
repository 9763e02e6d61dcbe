package merge

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"plinth/object"
)

// turns are operations on an object that three managers share through two API versions.
const turns = `
-- kind example.com/Thing --
-- version v1 --
spec: {type: object, properties: {a: {type: integer}, b: {type: integer}, c: {type: integer}}}
-- version v2 a=size --
spec: {type: object, properties: {size: {type: integer}, b: {type: integer}, c: {type: integer}}}
-- apply "alice" v1 --
spec: {a: 1, b: 1}
-- apply "bob" v2 --
spec: {b: 1, c: 1}
-- update "carol" v2 --
spec: {size: 2, b: 1, c: 1}
-- apply "alice" v1 force --
spec: {a: 1}
-- apply "bob" v1 force --
spec: {a: 3}
-- update "carol" v1 --
spec: {a: 3, c: 5}
`

// TestConversionsThatFail makes the conversion webhook fail in the middle of an operation: from the engine's first
// conversion on, from the second on, and so on. An apply is refused and changes nothing; an update is stored with the
// managedFields from before, or with those that it would have had without the failure.
func TestConversionsThatFail(t *testing.T) {
	h, err := readHistory(sections(turns))
	if err != nil {
		t.Fatal(err)
	}
	total := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		s := &state{kind: h.kind}
		for i, op := range h.steps {
			before := *s
			whole := s.do(upstream{}, op, time.Now())
			for _, e := range []engine{upstream{}, plinth{}} {
				failed := 0
				for failed < 100 && before.failsAt(t, fmt.Sprintf("%T, operation %d, conversion %d", e, i, failed+1), e, op,
					failed, whole) {
					failed++
				}
				t.Logf("%T, operation %d: %d conversions", e, i, failed)
				total[fmt.Sprintf("%T", e)] += failed
			}
		}
	})
	if len(total) != 2 {
		t.Errorf("conversions were counted of %v", total)
	}
	for e, failed := range total {
		if failed < 5 {
			t.Errorf("%s asks for %d conversions only", e, failed)
		}
	}
}

// failsAt runs an operation whose conversions fail after the given number. It reports whether one has failed.
func (s state) failsAt(t *testing.T, what string, e engine, op step, after int, whole outcome) bool {
	asked := 0
	s.kind.broken = func() error {
		if asked++; asked > after {
			return errors.New("no answer from the webhook")
		}
		return nil
	}
	defer func() { s.kind.broken = nil }()
	entries := s.live.At("metadata", "managedFields")
	o := s.do(e, op, time.Now())
	if asked <= after {
		if o.String() != whole.String() {
			t.Errorf("%s: no conversion fails, but it is\n%snot\n%s", what, o, whole)
		}
		return false
	}
	switch stored := o.live.At("metadata", "managedFields"); {
	case op.verb == apply && (o.err == nil || !o.same):
		t.Errorf("%s: an apply goes on:\n%s", what, o)
	case op.verb == update && o.err != nil:
		t.Errorf("%s: %v", what, o.err)
	case op.verb == update && o.String() != whole.String() && !object.Equal(stored, entries):
		t.Errorf("%s: the update is\n%snot\n%s", what, o, whole)
	}
	return true
}
