package merge

import (
	"errors"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// The text of a TypeError is bounded, although the client chooses the number of violations, and the keys on the paths
// to them: 20,000 wrong items below a key of 20 kB would be a message of 400 MB. The first violations are reported, the
// first one at any length.
//
// SPEC: WRITE-6
func TestTypeErrorsAreBounded(t *testing.T) {
	const many = 20_000
	lists := &Kind{Type: &schema.Type{Kind: schema.Map, Elem: &schema.Type{Kind: schema.List, Elem: text}}}
	wrong := make([]object.Value, many)
	for i := range wrong {
		wrong[i] = object.IntOf(1)
	}
	for name, c := range map[string]struct {
		key   string
		lines int // the least and, for a key that exceeds the bound, the only number of violations
	}{
		"short key":             {"k", maxErrorText / 50},
		"long key":              {strings.Repeat("k", 20<<10), 10},
		"key beyond all bounds": {strings.Repeat("k", maxErrorText+1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lists.Apply(object.Nil, object.MapOf(object.Member{Key: c.key, Value: object.ListOf(wrong...)}), Writer{})
			var typed *TypeError
			if !errors.As(err, &typed) {
				t.Fatalf("the error is %v, should be a TypeError", err)
			}
			if want := "." + c.key + "[0]: expected string, got 1"; typed.line() != want {
				t.Errorf("the first violation is %.100s, should be %.100s", typed.line(), want)
			}
			size, lines := len(typed.Error()), len(typed.more)+1
			if size > 2*max(maxErrorText, len(c.key)) || lines < c.lines || len(c.key) > maxErrorText && lines != 1 {
				t.Errorf("%d violations in %d bytes, should be at least %d", lines, size, c.lines)
			}
			for i, more := range typed.more {
				if !strings.HasPrefix(more.line(), "."+c.key+"[") {
					t.Fatalf("violation %d has an incomplete path: %.100s", i+2, more.line())
				}
			}
		})
	}
}
