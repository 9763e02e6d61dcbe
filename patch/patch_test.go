package patch

import (
	"errors"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
)

func parse(t testing.TB, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p.Value
}

// SPEC: WRITE-2 (the table of RFC 7386, appendix A)
func TestMerge(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		if got := string(object.AppendJSON(nil, Merge(parse(t, c[0]), parse(t, c[1])))); got != c[2] {
			t.Errorf("%s merged with %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

func FuzzMergeAsTheLibraryDoes(f *testing.F) {
	f.Add(`{"a":{"b":1,"c":[1]}}`, `{"a":{"b":null,"d":{"e":null,"f":2}}}`)
	f.Add(`{}`, `{"a":{}}`)
	f.Fuzz(func(t *testing.T, doc, patch string) {
		d, err := object.ParseJSON([]byte(doc))
		if err != nil || d.Value.Kind() != object.Map || len(d.Duplicates) > 0 {
			return
		}
		p, err := object.ParseJSON([]byte(patch))
		if err != nil || p.Value.Kind() != object.Map || len(p.Duplicates) > 0 {
			return
		}
		theirs, err := jsonpatch.MergePatch(object.AppendJSON(nil, d.Value), object.AppendJSON(nil, p.Value))
		if err != nil {
			return
		}
		want, err := object.ParseJSON(theirs)
		if err != nil {
			return
		}
		if ours := Merge(d.Value, p.Value); !object.Equal(ours, want.Value) {
			t.Errorf("%s merged with %s is %s, with the library %s", doc, patch, object.AppendJSON(nil, ours), theirs)
		}
	})
}

// SPEC: WRITE-2
func TestJSON(t *testing.T) {
	for _, c := range []struct {
		doc, patch, want string
		err              error
	}{
		{`{"a":1}`, `[{"op":"add","path":"/b","value":[2]}]`, `{"a":1,"b":[2]}`, nil},
		{`{"a":1}`, `[{"op":"test","path":"/a","value":1},{"op":"remove","path":"/a"}]`, `{}`, nil},
		{`{"a":{"x":1}}`, `[{"op":"move","from":"/a/x","path":"/y"}]`, `{"a":{},"y":1}`, nil},
		{`{"n":9007199254740993}`, `[{"op":"copy","from":"/n","path":"/m"}]`, `{"m":9007199254740993,"n":9007199254740993}`,
			nil},
		{`{"a":1}`, `[{"op":"test","path":"/a","value":2}]`, ``, ErrUnprocessable},
		{`{"a":1}`, `[{"op":"remove","path":"/zzz"}]`, ``, ErrUnprocessable},
		{`{"a":1}`, `[{"op":"frobnicate","path":"/a"}]`, ``, ErrUnprocessable},
		{`{"a":1}`, `{"op":"add"}`, ``, ErrMalformed},
		{`{"a":1}`, `[`, ``, ErrMalformed},
	} {
		got, err := JSON(parse(t, c.doc), []byte(c.patch), nil)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: error %v, want %v", c.patch, err, c.err)
			continue
		}
		if text := string(object.AppendJSON(nil, got)); err == nil && text != c.want {
			t.Errorf("%s: got %s, want %s", c.patch, text, c.want)
		}
	}
}

// SPEC: WRITE-2, WRITE-6
func TestJSONRefusesTooManyOperations(t *testing.T) {
	op := `{"op":"test","path":"/a","value":1}`
	body := "[" + strings.Repeat(op+",", MaxOperations) + op + "]"
	_, err := JSON(parse(t, `{"a":1}`), []byte(body), nil)
	var many *TooManyError
	if !errors.As(err, &many) || many.Operations != MaxOperations+1 {
		t.Errorf("got %v", err)
	}
}

// A small patch must not make an object huge by copying it into itself repeatedly.
// SPEC: WRITE-6
func TestJSONCopyBomb(t *testing.T) {
	body := "[" + strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/a","path":"/a/-"},`, 64), ",") + "]"
	got, err := JSON(parse(t, `{"a":["`+strings.Repeat("x", 1000)+`"]}`), []byte(body), nil)
	if err == nil {
		t.Errorf("the patch was applied, and the object has %d bytes", len(object.AppendJSON(nil, got)))
	}
}
