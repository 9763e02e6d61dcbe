package schema

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"plinth/object"
)

// vector is one filled-in object of a kind, as k8s.io/api brings them along.
type vector struct {
	name string
	kind gvk.GroupVersionKind
	json []byte
}

// vectors reads those of every kind that has a Go type in k8s.io/api.
var vectors = sync.OnceValues(func() ([]vector, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata/HEAD/*.json"))
	if err != nil {
		return nil, err
	}
	var found []vector
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		parts := strings.Split(name, ".")
		kind := gvk.GroupVersionKind{
			Group:   strings.Join(parts[:len(parts)-2], "."),
			Version: parts[len(parts)-2], Kind: parts[len(parts)-1],
		}
		if kind.Group == "core" {
			kind.Group = ""
		}
		if !scheme.Scheme.Recognizes(kind) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found = append(found, vector{name, kind, text})
	}
	return found, nil
})

func allVectors(t *testing.T) []vector {
	t.Helper()
	list, err := vectors()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 150 {
		t.Fatalf("only %d vectors found", len(list))
	}
	return list
}

// typ is the Go type of the kind.
func (v vector) typ(t *testing.T) reflect.Type {
	t.Helper()
	o, err := scheme.Scheme.New(v.kind)
	if err != nil {
		t.Fatal(err)
	}
	return reflect.TypeOf(o).Elem()
}

func parse(t *testing.T, text []byte) object.Value {
	t.Helper()
	p, err := object.ParseJSON(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p.Value
}
