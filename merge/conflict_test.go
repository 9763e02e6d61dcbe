package merge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// The text of a ConflictError is bounded, although the client chooses the number of conflicts, and the keys on the
// paths to them: 20,000 fields below a key of 20 kB would be a message of 400 MB. All conflicts are counted, and the
// first ones listed, the first one at any length.
//
// SPEC: SSA-4, WRITE-6
func TestConflictErrorsAreBounded(t *testing.T) {
	const many = 20_000
	maps := &Kind{Type: &schema.Type{Kind: schema.Map, Elem: &schema.Type{Kind: schema.Map, Elem: text}}}
	fields := func(key, value string) object.Value {
		var members []object.Member
		for i := range many {
			members = append(members, object.Member{Key: fmt.Sprintf("f%05d", i), Value: object.StringOf(value)})
		}
		return object.MapOf(object.Member{Key: key, Value: object.MapOf(members...)})
	}
	for name, c := range map[string]struct {
		key         string
		least, most int // conflicts that are listed
	}{
		"short key":             {"k", many, many},
		"long key":              {strings.Repeat("k", 20<<10), 100, maxConflictText / (20 << 10)},
		"key beyond all bounds": {strings.Repeat("k", maxConflictText+1), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			live, err := maps.Apply(object.Nil, fields(c.key, "x"),
				Writer{Manager: "a", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = maps.Apply(live, fields(c.key, "y"), Writer{Manager: "b", APIVersion: "v1"})
			var conflicts *ConflictError
			if !errors.As(err, &conflicts) {
				t.Fatalf("the error is %.200v, should be a ConflictError", err)
			}
			listed := len(conflicts.Conflicts)
			if conflicts.Len() != many || listed < c.least || listed > c.most {
				t.Errorf("%d conflicts, %d of them listed; should be %d, and between %d and %d", conflicts.Len(), listed, many,
					c.least, c.most)
			}
			message := conflicts.Error()
			if len(message) > 2*max(maxConflictText, len(c.key)) {
				t.Errorf("the message has %d bytes", len(message))
			}
			if !strings.HasPrefix(message, `Apply failed with 20000 conflicts: conflicts with "a":`+"\n- ."+c.key+".f00000") {
				t.Errorf("the message begins with %.200s", message)
			}
			if more := fmt.Sprintf("\n- … and %d more", many-listed); strings.HasSuffix(message, more) != (listed < many) {
				t.Errorf("the message ends with %s", message[len(message)-100:])
			}
			last := conflicts.Conflicts[listed-1]
			if last.Live.Str() != "x" || last.Wanted.Str() != "y" {
				t.Errorf("the values of the last one are %v and %v", last.Live, last.Wanted)
			}
		})
	}
}
