package patch

import (
	"errors"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// No patch of any document panics, and every result can be printed and parsed.
// SPEC: WRITE-2, WRITE-6
func FuzzJSON(f *testing.F) {
	for _, doc := range []string{`{"a":{"b":[1,null,{"c":"d"}]},"m":null,"/~":1}`, `{}`, `{"a":[]}`} {
		for _, patch := range []string{
			`[]`, `[null]`, `null`, `{}`, `[{}]`, `[{"op":"add"}]`, `[{"op":"add","path":null,"value":1}]`,
			`[{"op":"test","path":"/a"}]`,
			`[{"op":"test","path":"","value":{}}]`, `[{"op":"remove","path":""}]`, `[{"op":"replace","path":"","value":null}]`,
			`[{"op":"add","path":"","value":null},{"op":"add","path":"/a","value":1}]`,
			`[{"op":"add","path":"/a/b/-1","value":1}]`, `[{"op":"add","path":"/a/b/99999999999","value":1}]`,
			`[{"op":"remove","path":"/a/b/-9"}]`,
			`[{"op":"copy","from":"/a","path":"/a/b/0"}]`, `[{"op":"copy","from":"","path":"/a"}]`,
			`[{"op":"move","from":"/a","path":"/a/b"}]`,
			`[{"op":"move","from":"/a/b/1","path":"/m/x"}]`, `[{"op":"add","path":"/m/x","value":1}]`,
			`[{"op":"test","path":"/m","value":null}]`,
			`[{"op":"test","path":"/a/b/1","value":null}]`, `[{"op":"copy","from":null,"path":"/a"}]`,
			`[{"op":"move","path":"/a"}]`,
			`[{"op":"add","path":"/~2~","value":"\ud800"}]`, `[{"op":1,"path":[],"value":{}}]`,
			`[{"op":"replace","path":"/a/b/1/c","value":1}]`,
		} {
			f.Add(doc, patch)
		}
	}
	f.Fuzz(func(t *testing.T, doc, patch string) {
		parsed, err := object.ParseJSON([]byte(doc))
		if err != nil || parsed.Value.Kind() != object.Map {
			return
		}
		if CheckSyntax([]byte(patch)) == nil {
			if made, err := JSON(parsed.Value, []byte(patch), nil); err == nil {
				readable(t, made)
			}
		}
		if merge, err := object.ParseJSON([]byte(patch)); err == nil {
			readable(t, Merge(parsed.Value, merge.Value))
		}
	})
}

// SPEC: WRITE-2, WRITE-6
func FuzzStrategic(f *testing.F) {
	for _, live := range []string{
		`{"metadata":{"finalizers":["a","b","a"],"labels":{"a":"1"}},"spec":{"containers":[{"name":"a","ports":[{"containerPort":1}]},{"name":"b"}],"volumes":[{"name":"v"}]}}`,
		`{"spec":{"ports":[{"port":80},{"port":81.5},{}],"strategy":{"type":"x"},"selector":{"a":{}}},"data":{"a":[1e2]}}`,
	} {
		for _, patch := range []string{
			`{}`, `null`, `[]`, `{"$patch":"replace","a":null}`, `{"$patch":"delete"}`, `{"$patch":{}}`,
			`{"metadata":{"$retainKeys":["labels"],"labels":{"b":null}}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["c"],"$setElementOrder/finalizers":["c","b"]}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":null,"$deleteFromPrimitiveList/labels":{"a":"2"}}}`,
			`{"spec":{"containers":[{"name":"b","$patch":"delete"},{"name":"b"},{"name":"b","ports":[{"containerPort":1},{"containerPort":{}}]}]}}`,
			`{"spec":{"containers":[{"$patch":"replace"},{"name":null},{"name":null}],"$setElementOrder/containers":[{"name":null},1,[]]}}`,
			`{"spec":{"Containers":[[]],"$setElementOrder/CONTAINERS":[],"$setElementOrder/x":[null],"$setElementOrder":1,"$deleteFromPrimitiveList/":[{}]}}`,
			`{"spec":{"ports":[{"port":80,"$retainKeys":["port"]},{"port":81.5}],"strategy":{"$retainKeys":[[]]},"selector":{"$patch":"x"}}}`,
		} {
			f.Add(live, patch)
		}
	}
	types := []*schema.Type{podType, serviceType, deploymentType, budgetType, revisionType}
	f.Fuzz(func(t *testing.T, live, patch string) {
		l, err := object.ParseJSON([]byte(live))
		if err != nil || l.Value.Kind() != object.Map {
			return
		}
		p, err := object.ParseJSON([]byte(patch))
		if err != nil {
			return
		}
		base, err := l.Value.Untyped()
		if err != nil {
			return
		}
		for _, typ := range types {
			if same, err := Strategic(base, object.MapOf(), typ); err != nil || same != base {
				t.Errorf("%s: the result of an empty patch is %s, %v", live, object.AppendJSON(nil, same), err)
			}
			made, err := Strategic(base, p.Value, typ)
			if again, err2 := Strategic(base, p.Value, typ); !object.Equal(made, again) || (err == nil) != (err2 == nil) {
				t.Errorf("%s patched with %s has different results in two runs", live, patch)
			}
			if err == nil {
				readable(t, made)
				untouched(t, base, p.Value, made)
			} else if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnprocessable) && !errors.Is(err, ErrMisfit) {
				t.Errorf("%s patched with %s: the error wraps no sentinel: %v", live, patch, err)
			}
		}
	})
}

// untouched checks that the result shares the members of live that are not in the patch.
func untouched(t *testing.T, live, patch, made object.Value) {
	t.Helper()
	patched := map[string]bool{}
	for _, m := range patch.Members() {
		_, name, _ := strings.Cut(m.Key, "/")
		patched[m.Key], patched[name] = true, true
	}
	if patched[patchDirective] || patched[retainPrefix] {
		return
	}
	for _, m := range live.Members() {
		if got, _ := made.Get(m.Key); !patched[m.Key] && got != m.Value {
			t.Errorf("%s is not shared", m.Key)
		}
	}
}

func readable(t *testing.T, v object.Value) {
	t.Helper()
	text := object.AppendJSON(nil, v)
	if _, err := object.ParseJSON(text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}
