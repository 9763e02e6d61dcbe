package builtin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
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
			have = append(have, fmt.Sprintf("%s | %s | %s | %d | %s", c.Name, c.Type, c.Format, c.Priority, hex.EncodeToString(sum[:])[:12]))
		}
		if a, b := strings.Join(have, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("%s\nhave\n%s\nwant\n%s", key, a, b)
		}
	}
}
