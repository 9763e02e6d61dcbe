package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"plinth/object"
)

// ownersIn are the managers of a line of an answer to ?ownership=lines: "helm Apply, me Apply"; "-" if there is no such
// line.
func ownersIn(document object.Value, text string) string {
	for _, l := range document.At("lines").Items() {
		if strings.TrimSpace(l.At("text").Str()) != text {
			continue
		}
		var names []string
		for _, i := range l.At("owners").Items() {
			m := document.At("managers").Items()[i.Int()]
			names = append(names, m.At("manager").Str()+" "+m.At("operation").Str())
		}
		return strings.Join(names, ", ")
	}
	return "-"
}

// From an edit to its intent, to what it would change hands, to the write.
//
// SPEC: BEY-16
func TestOwnershipOfWrites(t *testing.T) { inBubble(t, nil, testOwnershipOfWrites) }

func testOwnershipOfWrites(t *testing.T, s *server) {
	const head = `"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"`
	apply := func(manager, query, body string) answer {
		t.Helper()
		return s.do("PATCH", configMaps+"/a?fieldManager="+manager+query, body,
			"Content-Type", "application/apply-patch+yaml")
	}
	must := func(a answer) object.Value {
		t.Helper()
		if a.code/100 != 2 {
			t.Fatalf("%d %s", a.code, a.body)
		}
		return a.value(t)
	}
	made := must(apply("helm", "&ownership=lines", `{`+head+`},"data":{"a":"1","b":"1"}}`))
	if got := ownersIn(made, `a: "1"`); got != "helm Apply" {
		t.Errorf("a create by an apply: %s\n%v", got, made)
	}
	must(apply("me", "", `{`+head+`},"data":{"c":"1"}}`))
	live := must(s.do("GET", configMaps+"/a", "", "Accept", "application/json"))
	edit := func(version, data string) string {
		return fmt.Sprintf(`{%s,"resourceVersion":%q,"labels":{"new":"x"}},"data":%s}`, head, version, data)
	}
	version := live.At("metadata", "resourceVersion").Str()
	const dry = "&dryRun=All"
	// b goes in the edit, which is no part of the intent; c was applied before.
	intent := apply("me", dry+"&ownership=intent", edit(version, `{"a":"2","c":"1"}`))
	const want = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"new":"x"},"name":"a"},"data":{"a":"2","c":"1"}}`
	if got := strings.TrimSpace(intent.body); intent.code != 200 || got != want {
		t.Errorf("the intent: %d\n%s\nwant\n%s", intent.code, got, want)
	}
	if a := apply("me", dry+"&ownership=lines", intent.body); a.code != 409 ||
		!strings.Contains(a.body, `"field":".data.a"`) {
		t.Errorf("without force: %d %s", a.code, a.body)
	}
	preview := must(apply("me", dry+"&force=true&ownership=lines", intent.body))
	for line, owners := range map[string]string{`a: "2"`: "me Apply", `b: "1"`: "helm Apply", `c: "1"`: "me Apply",
		"new: x": "me Apply", `a: "1"`: "-"} {
		if got := ownersIn(preview, line); got != owners {
			t.Errorf("after a dry run, %s is owned by %q, want %q", line, got, owners)
		}
	}
	after := must(s.do("GET", configMaps+"/a?ownership=lines", ""))
	if got := ownersIn(after, `a: "1"`); got != "helm Apply" {
		t.Errorf("the dry run has changed something: %s", got)
	}
	update := strings.Replace(edit("", `{"a":"3"}`), `"resourceVersion":"",`, "", 1)
	updated := must(s.do("PUT", configMaps+"/a?fieldManager=put&dryRun=All&ownership=lines", update))
	if got := ownersIn(updated, `a: "3"`); got != "put Update" {
		t.Errorf("an update: %s", got)
	}
	merged := must(s.do("PATCH", configMaps+"/a?fieldManager=p&ownership=lines", `{"data":{"a":"4"}}`,
		"Content-Type", "application/merge-patch+json"))
	if got := ownersIn(merged, `a: "4"`); got != "p Update" {
		t.Errorf("a patch: %s", got)
	}
	// The object has changed since it was read, or is gone.
	if a := apply("me", dry+"&ownership=intent", edit(version, `{"a":"2"}`)); a.code != 409 {
		t.Errorf("an edit of an older version: %d %s", a.code, a.body)
	}
	if a := s.do("PATCH", configMaps+"/a?fieldManager=me"+dry+"&ownership=intent", edit("", "{}"), "Content-Type",
		"application/apply-patch+yaml", "If-Match", version); a.code != 412 {
		t.Errorf("an edit of an older version, by If-Match: %d %s", a.code, a.body)
	}
	const gone = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gone","uid":"x"},"data":{}}`
	if a := s.do("PATCH", configMaps+"/gone?fieldManager=me&dryRun=All&ownership=intent", gone,
		"Content-Type", "application/apply-patch+yaml"); a.code != 404 {
		t.Errorf("an edit of an object that is gone: %d %s", a.code, a.body)
	}
	for _, bad := range []struct {
		method, query, kind string
		says                string
	}{
		{"PATCH", "&ownership=intent", "apply-patch+yaml", "needs dryRun=All"},
		{"PATCH", dry + "&ownership=x", "apply-patch+yaml", "must be 'document', 'lines', 'yaml' or 'intent'"},
		{"PATCH", dry + "&ownership=intent", "merge-patch+json", "must be 'document', 'lines' or 'yaml'"},
		{"PUT", dry + "&ownership=intent", "json", "must be 'document', 'lines' or 'yaml'"},
		{"PATCH", dry + "&ownership=intent", "apply-patch+yaml", ""},
	} {
		body := `{` + head + `},"data":{"a":"2"}}`
		if bad.says == "" {
			body, bad.says = `{`+head+`},"dat":{"a":"2"}}`, "field not declared in schema"
		}
		a := s.do(bad.method, configMaps+"/a?fieldManager=me"+bad.query, body, "Content-Type", "application/"+bad.kind)
		if a.code != 400 || !strings.Contains(a.body, bad.says) {
			t.Errorf("%s %s: %d %s", bad.method, bad.query, a.code, a.body)
		}
	}
}
