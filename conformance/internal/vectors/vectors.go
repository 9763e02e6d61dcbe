// Package vectors reads the objects with which k8s.io/api tests its encodings: one of every kind, with every field set.
// They are the seeds of the random objects that are compared with upstream.
package vectors

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Vector is the object of one kind.
type Vector struct {
	Name string // its file's name: core.v1.Pod
	Kind schema.GroupVersionKind
	Type reflect.Type // in k8s.io/api
	JSON []byte
}

// Document returns the object as encoding/json decodes it. The caller may change it.
func (v Vector) Document(t testing.TB) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(v.JSON, &doc); err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return doc
}

// fewest is a minimum that every release of k8s.io/api exceeds.
const fewest = 150

// Read reads the vectors of all kinds in client-go's scheme, in the order of their names.
var Read = sync.OnceValues(func() ([]Vector, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m k8s.io/api: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "HEAD", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Vector
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		kind := kindOf(name)
		if !scheme.Scheme.Recognizes(kind) {
			continue
		}
		typed, err := scheme.Scheme.New(kind)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, Vector{name, kind, reflect.TypeOf(typed).Elem(), text})
	}
	if len(all) < fewest {
		return nil, fmt.Errorf("only %d vectors found", len(all))
	}
	return all, nil
})

// All is Read for tests.
func All(t testing.TB) []Vector {
	t.Helper()
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// kindOf parses a name: the group with its dots, the version, the kind.
func kindOf(name string) schema.GroupVersionKind {
	parts := strings.Split(name, ".")
	last := len(parts) - 1
	group := strings.Join(parts[:last-1], ".")
	if group == "core" {
		group = ""
	}
	return schema.GroupVersionKind{Group: group, Version: parts[last-1], Kind: parts[last]}
}

// Emptied returns the empty value of the same JSON type, for variants of a vector in which a field is present but
// empty.
func Emptied(value any) any {
	switch value.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	case string:
		return ""
	case float64:
		return 0.0
	case bool:
		return false
	}
	return nil
}
