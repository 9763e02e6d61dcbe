package object

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// apiModule is the directory of the module k8s.io/api, which contains a filled-in object of every kind.
var apiModule = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	return strings.TrimSpace(string(out)), err
})

func vectorDir(tb testing.TB) string {
	tb.Helper()
	dir, err := apiModule()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "testdata", "HEAD")
}

// Every vector is the same value in JSON and in YAML and the same as with encoding/json, and its text is parsed and
// printed unchanged.
//
// SPEC: MED-1, MED-2.
func TestVectorsRoundTrip(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(vectorDir(t), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 180 {
		t.Fatalf("only %d vectors in %s", len(files), vectorDir(t))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			fromJSON := readParsed(t, file, ParseJSON)
			fromYAML := readParsed(t, strings.TrimSuffix(file, "json")+"yaml", ParseYAML)
			if !Equal(fromJSON, fromYAML) {
				t.Errorf("JSON and YAML differ:\n%s\n%s", AppendJSON(nil, fromJSON), AppendJSON(nil, fromYAML))
			}
			printed := AppendObject(nil, fromJSON)
			again, err := ParseJSON(bytes.Clone(printed))
			if err != nil {
				t.Fatal(err)
			}
			if second := AppendObject(nil, again.Value); !bytes.Equal(printed, second) || !Equal(again.Value, fromJSON) {
				t.Errorf("printed, and parsed and printed again:\n%s\n%s", printed, second)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var whole any
			if err := json.Unmarshal(text, &whole); err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(whole) // sorts
			if err != nil {
				t.Fatal(err)
			}
			if got := AppendJSON(nil, fromJSON); !bytes.Equal(got, want) {
				t.Errorf("ours %s\nwant %s", got, want)
			}
			toYAML, err := YAML(printed)
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseYAML(toYAML)
			if err != nil {
				t.Fatal(err)
			}
			if !Equal(back.Value, fromJSON) {
				t.Errorf("printed as YAML and parsed: %s", AppendJSON(nil, back.Value))
			}
		})
	}
}

func readParsed(t *testing.T, file string, parse func([]byte) (Parsed, error)) Value {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Duplicates) > 0 {
		t.Errorf("duplicates in %s: %q", file, p.Duplicates)
	}
	return p.Value
}
