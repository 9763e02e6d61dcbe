//go:build mutants

package defaults_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/mutants"
	"plinth/object"
)

// TestMutants runs the recorded objects on each mutant, all in one process, and reports those that TestRecorded
// notices.
func TestMutants(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	r, err := mutants.NewRecorder()
	if err != nil {
		t.Fatal(err)
	}
	var samples []*mutants.Sample
	for i := 0; i < len(lines); i += 3 {
		version, kind, _ := strings.Cut(lines[i], " ")
		group, number, ok := strings.Cut(version, "/")
		if !ok {
			group, number = "", version
		}
		in, err := object.ParseJSON([]byte(lines[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Sample(func() (string, error) {
			fill := builtin.FunctionsOf(group, number, kind).Defaults
			if fill == nil {
				return "no defaults", nil
			}
			return string(object.AppendJSON(nil, fill(in.Value, time.Time{}))), nil
		})
		if err != nil || s.Says != lines[i+2] {
			t.Fatalf("line %d: %v", i+2, err)
		}
		r.Close(s)
		samples = append(samples, s)
	}
	r.CloseGlobals(samples, nil)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}
