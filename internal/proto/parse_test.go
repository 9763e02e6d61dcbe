package proto_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/proto"
	"plinth/object"
)

// vectors is the folder of k8s.io/api that holds a filled-in object of every kind in every format.
func vectors(tb testing.TB, release string) string {
	tb.Helper()
	dir, err := apiModule()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "testdata", release)
}

var apiModule = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	return strings.TrimSpace(string(out)), err
})

// kinds are the built-in types by the names of their vectors: "apps.v1.Deployment".
func kinds() map[string]*engine.Resource {
	all := map[string]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		group := r.Group
		if group == "" {
			group = "core"
		}
		all[group+"."+r.Version+"."+r.Kind] = r
	}
	return all
}

// A body in protobuf means what the same body in JSON means.
// SPEC: MED-3
func TestParseVectors(t *testing.T) {
	dir := vectors(t, "HEAD")
	found := 0
	for name, r := range kinds() {
		if r.Group == "apiextensions.k8s.io" {
			continue // its module has no vectors; see TestDefinitions
		}
		pb, err := os.ReadFile(filepath.Join(dir, name+".pb"))
		if err != nil {
			t.Errorf("no vector: %v", err)
			continue
		}
		found++
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.Schema().Decode(parsed.Value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		value, err := proto.Parse(r.Schema(), pb)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := r.Schema().Decode(value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a, b := object.AppendObject(nil, got.Value), object.AppendObject(nil, want.Value); string(a) != string(b) {
			t.Errorf("%s:\nprotobuf %s\njson     %s", name, a, b)
		}
	}
	if found < 65 {
		t.Errorf("only %d vectors were there", found)
	}
}

// SPEC: MED-3, WRITE-6
func TestParseRefuses(t *testing.T) {
	pod := kinds()["core.v1.Pod"].Schema()
	whole, err := os.ReadFile(filepath.Join(vectors(t, "HEAD"), "core.v1.Pod.pb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"nothing", nil},
		{"JSON", []byte(`{"kind":"Pod"}`)},
		{"magic cut short", []byte("k8s")},
		{"cut short", whole[:len(whole)/2]},
		{"a length beyond the end", []byte("k8s\x00\x12\xff\xff\xff\xff\x0f")},
		{"a group", []byte("k8s\x00\x12\x01\x0b")},
		{"text where a message belongs", []byte("k8s\x00\x12\x03\x0a\x01x")},
	} {
		if v, err := proto.Parse(pod, c.body); err == nil {
			t.Errorf("%s: read as %s", c.name, object.AppendJSON(nil, v))
		}
	}
}

func FuzzParse(f *testing.F) {
	types := []string{"core.v1.Pod", "apps.v1.Deployment", "autoscaling.v2.HorizontalPodAutoscaler", "core.v1.Secret",
		"flowcontrol.apiserver.k8s.io.v1.FlowSchema"}
	all := kinds()
	for i, name := range types {
		pb, err := os.ReadFile(filepath.Join(vectors(f, "HEAD"), name+".pb"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, pb)
	}
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		r := all[types[uint(i)%uint(len(types))]]
		v, err := proto.Parse(r.Schema(), body)
		if err != nil {
			return
		}
		decoded, err := r.Schema().Decode(v)
		if err != nil {
			return
		}
		printed := object.AppendObject(nil, decoded.Value)
		if _, err := object.ParseJSON(printed); err != nil {
			t.Errorf("printed as %s: %v", printed, err)
		}
	})
}
