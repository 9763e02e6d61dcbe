package builtin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"plinth/internal/engine"
)

// recordedColumns reads testdata/columns-1.37.txt: for each type, a line for each of its columns.
func recordedColumns(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("testdata/columns-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	key := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			key = strings.Trim(line, "[]")
			all[key] = []string{}
		default:
			all[key] = append(all[key], line)
		}
	}
	return all
}

// SPEC: MED-6
func TestColumnsAreTheReferences(t *testing.T) {
	recorded := recordedColumns(t)
	for _, r := range Resources(Config{}) {
		if !r.Has("list") {
			continue
		}
		key := r.Group + "/" + r.Version + "/" + r.Name
		want, ok := recorded[key]
		if !ok {
			t.Errorf("nothing is recorded of %s", key)
			continue
		}
		if r.Columns == nil {
			if len(want) != 2 || !strings.HasPrefix(want[1], "Created At") {
				t.Errorf("%s has no columns of its own, the reference has %v", key, want)
			}
			continue
		}
		var have []string
		for _, c := range r.Columns {
			sum := sha256.Sum256([]byte(c.Description))
			have = append(have, fmt.Sprintf("%s | %s | %s | %d | %s", c.Name, c.Type, c.Format, c.Priority,
				hex.EncodeToString(sum[:])[:12]))
		}
		if a, b := strings.Join(have, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("%s\nhave\n%s\nwant\n%s", key, a, b)
		}
	}
}

// recordedRow is one line of testdata/rows-1.37.jsonl: an object and its row in a Table of kube-apiserver 1.37, as of
// now.
type recordedRow struct {
	Type   string
	Now    time.Time
	Object json.RawMessage
	Cells  []any
}

// SPEC: MED-6
func TestCellsAreTheReferences(t *testing.T) {
	data, err := os.ReadFile("testdata/rows-1.37.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all := types(t)
	for line := range strings.Lines(string(data)) {
		var row recordedRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		obj := parse(t, string(row.Object))
		r := all[strings.TrimPrefix(row.Type, "v1 ")]
		if r == nil {
			t.Fatalf("%s is recorded, and not served", row.Type)
		}
		have, err := json.Marshal(asOf(row.Now, r.Cells(obj)))
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(row.Cells)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != string(want) {
			t.Errorf("%s %s\nhave %s\nwant %s", row.Type, obj.At("metadata", "name").Str(), have, want)
		}
	}
}

// asOf is a row with the ages of now.
func asOf(now time.Time, cells []any) []any {
	for i, cell := range cells {
		if age, is := cell.(engine.Age); is {
			cells[i] = age.Text(now)
		}
	}
	return cells
}

func BenchmarkPodCells(b *testing.B) {
	data, err := os.ReadFile("testdata/rows-1.37.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	var row recordedRow
	line, _, _ := strings.Cut(string(data), "\n")
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		b.Fatal(err)
	}
	pod, cells := parse(b, string(row.Object)), types(b)["pods"].Cells
	b.ReportAllocs()
	for b.Loop() {
		cells(pod)
	}
}
