package builtin

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"plinth/object"
)

// The cells of testdata/cells.txt are those that upstream's printers make from objects. Below the comment and the time
// from which ages are computed, it has three lines a case: the type, the object, and the cells.
//
// SPEC: MED-6
func TestRecordedCells(t *testing.T) {
	text, err := os.ReadFile("testdata/cells.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[2:] // below a comment
	now, err := time.Parse(time.RFC3339, lines[0])
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	all := cellsByType(t)
	for i := 1; i+2 < len(lines); i += 3 {
		typ, in, want := lines[i], lines[i+1], lines[i+2]
		cells := all[typ]
		if cells == nil {
			t.Fatalf("line %d: %s shows no cells", i+2, typ)
		}
		shown[typ] = true
		have, err := json.Marshal(asOf(now, cells(parse(t, in))))
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != want {
			t.Errorf("line %d: %s %s\nhave %s\nwant %s", i+4, typ, in, have, want)
		}
	}
	for typ := range all {
		if !shown[typ] {
			t.Errorf("no cells of %s are recorded", typ)
		}
	}
}

// cellsByType are the functions that fill the cells of types and of Scales, by version and kind.
func cellsByType(t *testing.T) map[string]func(obj object.Value) []any {
	t.Helper()
	all := map[string]func(obj object.Value) []any{}
	for _, r := range Resources(Config{}) {
		if r.Cells != nil {
			all[r.APIVersion()+" "+r.Kind] = r.Cells
		}
		if s := r.Subresource("scale"); s != nil {
			all[s.Group+"/"+s.Version+" "+s.Kind] = s.Cells
		}
	}
	return all
}
