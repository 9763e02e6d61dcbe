package defaults_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"plinth/internal/builtin"
	"plinth/object"
)

// The objects of testdata/recorded.txt get the same defaults as in the reference. It has three lines a case: the
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
		fill := builtin.FunctionsOf(group, number, kind).Defaults
		if fill == nil {
			t.Errorf("line %d: no defaults of %s", i+2, lines[i])
			continue
		}
		in, err := object.ParseJSON([]byte(lines[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(object.AppendJSON(nil, fill(in.Value, time.Time{}))); got != lines[i+2] {
			t.Errorf("line %d: %s %s\n got %s\nwant %s", i+2, lines[i], lines[i+1], got, lines[i+2])
		}
	}
}
