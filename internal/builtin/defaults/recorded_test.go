package defaults

import (
	"os"
	"strings"
	"testing"

	"plinth/object"
)

// The objects of testdata/recorded.txt get the defaults that the reference has given them. Three lines each: the
// version and the kind, the object, and the object with its defaults.
//
// SPEC: VAL-4
func TestRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:] // below a comment
	if len(lines)%3 != 0 || len(lines) < 300 {
		t.Fatalf("%d lines", len(lines))
	}
	for i := 0; i < len(lines); i += 3 {
		version, kind, _ := strings.Cut(lines[i], " ")
		group, number, ok := strings.Cut(version, "/")
		if !ok {
			group, number = "", version
		}
		fill := For(group, number, kind)
		if fill == nil {
			t.Errorf("line %d: no defaults of %s", i+2, lines[i])
			continue
		}
		in := parse(t, lines[i+1])
		if got := string(object.AppendJSON(nil, fill(in))); got != lines[i+2] {
			t.Errorf("line %d: %s %s\n got %s\nwant %s", i+2, lines[i], lines[i+1], got, lines[i+2])
		}
	}
}
