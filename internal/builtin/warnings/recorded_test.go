package warnings_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

// The warnings are those of upstream. Below the comment, testdata/recorded.txt has three lines a case:
// the type and the verb; the object, or a list of the new and the old one; and the warnings.
//
// SPEC: VAL-2
func TestRecordedWarnings(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		served[r.APIVersion()+" "+r.Kind] = r
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[3:]
	if len(lines)%3 != 0 || len(lines) < 300 {
		t.Fatalf("%d lines", len(lines))
	}
	for i := 0; i < len(lines); i += 3 {
		at := strings.LastIndexByte(lines[i], ' ')
		r, verb := served[lines[i][:at]], lines[i][at+1:]
		parsed, err := object.ParseJSON([]byte(lines[i+1]))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if err := json.Unmarshal([]byte(lines[i+2]), &want); err != nil {
			t.Fatal(err)
		}
		have, err := warned(r, verb, parsed.Value)
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("line %d: %s of %s\nhave %q (%v)\nwant %q", i+4, lines[i], lines[i+1], have, err, want)
		}
	}
}

// warned are the warnings for a write of an object, which is prepared as by the engine.
func warned(r *engine.Resource, verb string, in object.Value) ([]string, error) {
	if verb == "create" {
		return r.WarnCreate(r.PrepareCreate(in, access.User{Name: "writer"}), in), nil
	}
	obj, old := in.Items()[0], in.Items()[1]
	if verb != "update" {
		sub := r.Subresource(verb)
		written, err := sub.Write(old, obj)
		if err != nil {
			return nil, err
		}
		return sub.Warn(written, old), nil
	}
	obj = r.PrepareUpdate(obj, old)
	generation := old.At("metadata", "generation").Int()
	if g := r.Generation; g != nil && !object.Equal(g(r.Schema().Settle(obj)), g(r.Schema().Settle(old))) {
		generation++
	}
	return r.WarnUpdate(obj.WithAt(object.IntOf(generation), "metadata", "generation"), old), nil
}
