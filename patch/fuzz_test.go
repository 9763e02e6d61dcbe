package patch

import (
	"testing"

	"plinth/object"
)

// No patch panics, whatever it says and whatever it is applied to, and what it makes can be printed and read again.
// SPEC: WRITE-2, WRITE-6
func FuzzJSON(f *testing.F) {
	for _, doc := range []string{`{"a":{"b":[1,null,{"c":"d"}]},"m":null,"/~":1}`, `{}`, `{"a":[]}`} {
		for _, patch := range []string{
			`[]`, `[null]`, `null`, `{}`, `[{}]`, `[{"op":"add"}]`, `[{"op":"add","path":null,"value":1}]`, `[{"op":"test","path":"/a"}]`,
			`[{"op":"test","path":"","value":{}}]`, `[{"op":"remove","path":""}]`, `[{"op":"replace","path":"","value":null}]`,
			`[{"op":"add","path":"","value":null},{"op":"add","path":"/a","value":1}]`,
			`[{"op":"add","path":"/a/b/-1","value":1}]`, `[{"op":"add","path":"/a/b/99999999999","value":1}]`, `[{"op":"remove","path":"/a/b/-9"}]`,
			`[{"op":"copy","from":"/a","path":"/a/b/0"}]`, `[{"op":"copy","from":"","path":"/a"}]`, `[{"op":"move","from":"/a","path":"/a/b"}]`,
			`[{"op":"move","from":"/a/b/1","path":"/m/x"}]`, `[{"op":"add","path":"/m/x","value":1}]`, `[{"op":"test","path":"/m","value":null}]`,
			`[{"op":"test","path":"/a/b/1","value":null}]`, `[{"op":"copy","from":null,"path":"/a"}]`, `[{"op":"move","path":"/a"}]`,
			`[{"op":"add","path":"/~2~","value":"\ud800"}]`, `[{"op":1,"path":[],"value":{}}]`, `[{"op":"replace","path":"/a/b/1/c","value":1}]`,
		} {
			f.Add(doc, patch)
		}
	}
	f.Fuzz(func(t *testing.T, doc, patch string) {
		parsed, err := object.ParseJSON([]byte(doc))
		if err != nil || parsed.Value.Kind() != object.Map {
			return
		}
		if IsList([]byte(patch)) == nil {
			if made, err := JSON(parsed.Value, []byte(patch)); err == nil {
				readable(t, made)
			}
		}
		if merge, err := object.ParseJSON([]byte(patch)); err == nil {
			readable(t, Merge(parsed.Value, merge.Value))
		}
	})
}

func readable(t *testing.T, v object.Value) {
	t.Helper()
	text := object.AppendJSON(nil, v)
	if _, err := object.ParseJSON(text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}
