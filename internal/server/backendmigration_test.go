package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"plinth/internal/engine"
)

// A migration of a resource that another server has is done there, object by object: what it stores in an old version
// is stored in the new one afterwards.
//
// SPEC: RUN-4, EXT-2
func TestMigrationAtABackend(t *testing.T) {
	p := newBackedServer(t)
	definition := p.behind.must(200, "GET", definitions+"/widgets.a.example.com", nil)
	versions := definition["spec"].(map[string]any)["versions"].([]any)
	second := map[string]any{}
	for k, v := range versions[0].(map[string]any) {
		second[k] = v
	}
	second["name"], second["storage"] = "v2", false
	definition["spec"].(map[string]any)["versions"] = append(versions, second)
	definition = p.behind.must(200, "PUT", definitions+"/widgets.a.example.com", definition)
	for i := range 20 {
		p.must(201, "POST", backWidgets, widget(map[string]any{"name": fmt.Sprint("w", i)}))
	}
	for i, v := range definition["spec"].(map[string]any)["versions"].([]any) {
		v.(map[string]any)["storage"] = i == 1
	}
	p.behind.must(200, "PUT", definitions+"/widgets.a.example.com", definition)
	stored := func() string {
		found := map[string]int{}
		list, err := p.back.plane.Engine.ListStored(p.ctx, p.back.plane.Registry.Now().Named("a.example.com", "widgets"))
		if err != nil {
			t.Fatal(err)
		}
		for o := range list.Items {
			head, err := engine.HeadOf(o)
			if err != nil {
				t.Fatal(err)
			}
			found[head.At("apiVersion").Str()]++
		}
		return fmt.Sprint(found)
	}
	if got := stored(); got != "map[a.example.com/v1:20]" {
		t.Fatalf("before the migration: %s", got)
	}
	if said := p.migrate("m", "a.example.com", "widgets"); said != "Running=False Succeeded=True " {
		t.Errorf("the migration says %s", said)
	}
	if got := stored(); got != "map[a.example.com/v2:20]" {
		t.Errorf("after the migration: %s", got)
	}
	message := p.must(200, "GET", migrations+"/m", nil)
	if text := fmt.Sprint(message["status"]); !strings.Contains(text, "Migration completed") {
		t.Errorf("its status is %s", text)
	}
	// A write that the backend refuses.
	p.behind.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", jsonObject{
		"metadata": map[string]any{"name": "p"}, "spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{"a.example.com"},
				"apiVersions": []any{"*"}, "operations": []any{"UPDATE"}, "resources": []any{"widgets"}}}},
			"validations": []any{map[string]any{"expression": "false"}}}})
	p.behind.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", jsonObject{
		"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"policyName": "p",
			"validationActions": []any{"Deny"}}})
	if said := p.migrate("refused", "a.example.com", "widgets"); said != "Running=False Failed=True " {
		t.Errorf("the migration that the backend refuses says %s", said)
	}
	text := fmt.Sprint(p.must(200, "GET", migrations+"/refused", nil)["status"])
	if !strings.Contains(text, "20/20 not yet migrated. migration encountered unhandled error: widgets.a.example.com ") {
		t.Errorf("its status is %s", text)
	}
}

// A migration fails where the reference's does: the resource has not the verbs, its revisions are no numbers, or a
// patch is refused for good. It goes on after an answer that may be another one next time. What is asked is what the
// reference asks.
//
// SPEC: RUN-4, EXT-2
func TestMigrationAtABadBackend(t *testing.T) {
	c, _, b := serveBackend(t)
	verbs, revision, item := "", "", ""
	var patched []int // the codes of the next patches
	var mu sync.Mutex
	var asked []string
	b.behave(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		user := r.Header.Get("X-Remote-User")
		if strings.HasSuffix(user, ":storage-version-migrator-controller") {
			asked = append(asked, r.Method+" "+r.URL.RequestURI())
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/back.example.com/v1":
			fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"back.example.com/v1","resources":[{"name":"things",`+
				`"singularName":"thing","namespaced":true,"kind":"Thing","verbs":[%s]}]}`, verbs)
		case r.Method == "PATCH" && patched[0] != 200:
			http.Error(w, "no", patched[0])
			patched = patched[1:]
		case r.Method == "PATCH":
			io.WriteString(w, `{"metadata":{"namespace":"n","name":"a","uid":"1","resourceVersion":"9"}}`)
		case strings.HasSuffix(r.URL.Path, "/things"):
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%s"},"items":[{"metadata":{"namespace":"n","name":"a","uid":"1",`+
				`"resourceVersion":"%s"}},{"metadata":{"namespace":"n","name":"b","uid":"2","resourceVersion":"6"}}]}`, revision,
				item)
		default:
			http.NotFound(w, r)
		}
	})
	const all = `"get","list","watch","delete","patch","update"`
	for i, row := range []struct {
		verbs, revision, item string
		patched               []int
		ended, message, asked string
	}{
		{`"get","list","watch","patch"`, "5", "5", nil, "Failed", `resource "back.example.com/v1, Resource=things" does ` +
			`not support discovery operations: [update patch list]`, "[]"},
		{all, "x", "5", nil, "Failed", "latest resourceVersion for back.example.com/v1, Resource=things is not valid: " +
			"resource version is not well formed: x", "[GET /apis/back.example.com/v1/namespaces/fake-svm-namespace/things?limit=1]"},
		{all, "5", "y", nil, "Failed", "migration encountered unhandled error: resource version is not well formed: y", ""},
		{all, "5", "5", []int{403}, "Failed", "1/2 not yet migrated. migration encountered unhandled error: no", ""},
		{all, "5", "5", []int{503, 429, 500, 200}, "Succeeded", "Migration completed", ""},
		{all, "5", "5", []int{404}, "Succeeded", "Migration completed", ""},
		{all, "5", "5", []int{200}, "Succeeded", "Migration completed", "[" +
			"GET /apis/back.example.com/v1/namespaces/fake-svm-namespace/things?limit=1 " +
			"GET /apis/back.example.com/v1/things?limit=500&continue= " +
			"PATCH /apis/back.example.com/v1/namespaces/n/things/a?fieldManager=storage-version-migrator-controller]"},
	} {
		mu.Lock()
		changed := verbs != row.verbs
		verbs, revision, item, patched, asked = row.verbs, row.revision, row.item, row.patched, nil
		mu.Unlock()
		if changed { // the documents of a new APIService are fetched at once
			if i > 0 {
				c.must(200, "DELETE", apiServices+"/v1.back.example.com", nil)
				c.must(200, "DELETE", "/api/v1/namespaces/default/services/back", nil)
			}
			c.register(b)
			c.eventually("the backend's verbs in discovery", func() bool {
				return strings.Contains(c.entry(), `"verbs":[`+row.verbs+`]`)
			})
		}
		name := fmt.Sprint("m", i)
		if said := c.migrate(name, "back.example.com", "things"); said != "Running=False "+row.ended+"=True " {
			t.Errorf("%s: %s", name, said)
		}
		status := fmt.Sprint(c.must(200, "GET", migrations+"/"+name, nil)["status"])
		if !strings.Contains(status, row.message) {
			t.Errorf("%s: %s", name, status)
		}
		mu.Lock()
		if got := fmt.Sprint(asked); row.asked != "" && got != row.asked {
			t.Errorf("%s: asked %s", name, got)
		}
		mu.Unlock()
	}
}
