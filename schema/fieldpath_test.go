package schema

import (
	"strings"
	"testing"
)

func TestFieldPath(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"", ""},
		{".a", "a"},
		{".spec.labels['a.b']", "spec|labels|a.b"},
		{".a['b'].c", "a|b|c"},
		{`['it\'s'].x`, "it's|x"},
		{`['a\tb'].c`, "a\tb|c"},
		// a quote after a backslash does not end a text, as in the reference
		{`['b\\']`, `expected single quoted string but got 'b\\']`},
		{"a", "expected [ or . but got: a"},
		{".", "unexpected end of JSON path"},
		{".a[", "a|unexpected end of JSON path"},
		{".a[0]", "a|expected single quoted string but got 0"},
		{".a['b'", "a|b|unexpected end of JSON path"},
		{".a['b'.c", "a|b|expected ] but got ."},
		{`.a['\q']`, `a|invalid string literal: invalid escape char \q`},
	} {
		var steps []string
		for p := NewFieldPath(c.path, true); ; {
			name, ok, err := p.Next()
			if err != nil {
				steps = append(steps, err.Error())
			}
			if !ok {
				break
			}
			steps = append(steps, name)
		}
		if got := strings.Join(steps, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
	p := NewFieldPath("['a']", false)
	if _, _, err := p.Next(); err == nil || err.Error() != "array notation is not allowed" {
		t.Errorf("a path with brackets that are not allowed: %v", err)
	}
}
