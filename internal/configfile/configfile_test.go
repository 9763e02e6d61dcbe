package configfile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type thing struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Names      []string
	Size       int `json:"size"`
}

// SPEC: AUTH-2
func TestDecode(t *testing.T) {
	versions := []string{"a.io/v1", "a.io/v1beta1"}
	for _, c := range []struct{ text, strict, err string }{
		{text: "kind: Thing\napiVersion: a.io/v1\nsize: 3\n"},
		{text: `{"kind":"Thing","apiVersion":"a.io/v1beta1","size":3}`},
		{text: "kind: Thing\napiVersion: a.io/v1\nsize: 3\nsize: 4\nshape: round\n",
			strict: "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"size\" already set in map, unknown field \"shape\""},
		{text: `{"kind":"Thing","apiVersion":"a.io/v1","size":3,"size":4,"Size":5}`,
			strict: `strict decoding error: duplicate field "size", unknown field "Size"`},
		{text: "size: 3\n", err: "Object 'Kind' is missing in 'size: 3\n'"},
		{text: "", err: "Object 'Kind' is missing in ''"},
		{text: "kind: Thing\n", err: "Object 'apiVersion' is missing in 'kind: Thing\n'"},
		{text: "kind: Thing\napiVersion: a.io/v2\n", err: `no kind "Thing" is registered for version "a.io/v2"`},
		{text: "kind: Thing\napiVersion: a/b/c\n", err: `unexpected GroupVersion string: a/b/c`},
		{text: "kind: Other\napiVersion: a.io/v1\n", err: `no kind "Other" is registered for version "a.io/v1"`},
		{text: "kind: Thing\napiVersion: a.io/v1\nsize: big\n",
			err: "json: cannot unmarshal string into Go struct field thing.size of type int"},
		{text: "kind: [Thing]\n",
			err: "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field .kind of type string"},
		{text: "a: b: c", err: "yaml: mapping values are not allowed in this context"},
		{text: "{", err: "couldn't get version/kind; json parse error: unexpected end of JSON input"},
	} {
		var into thing
		lenient, err := Decode([]byte(c.text), "Thing", versions, &into)
		if got := errorText(err); got != c.err {
			t.Errorf("%q: %s, want %s", c.text, got, c.err)
		}
		if got := errorText(Strict(lenient)); err == nil && got != c.strict {
			t.Errorf("%q: %s, want %s", c.text, got, c.strict)
		}
		if c.err == "" && into.Size < 3 {
			t.Errorf("%q: %+v", c.text, into)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// SPEC: AUTH-2
func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	seen := make(chan string)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, file, []byte("one"), time.Millisecond, func(text []byte, err error) {
			if err != nil {
				text = []byte("error")
			}
			seen <- string(text)
		})
	}()
	time.Sleep(20 * time.Millisecond) // nothing has changed yet
	for _, next := range []string{"two", "error", "three", "two"} {
		if next == "error" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else {
			write(next)
		}
		if got := <-seen; got != next {
			t.Fatalf("%s was seen, not %s", got, next)
		}
	}
	stop()
	<-ended
}
