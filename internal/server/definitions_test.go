package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitionOf is a definition of namespaced things with two fields and a status.
func definitionOf(group, plural, kind string) jsonObject {
	return jsonObject{
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind, "singular": strings.ToLower(kind),
				"listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": map[string]any{
						"size": map[string]any{"type": "integer", "default": 3}, "colour": map[string]any{"type": "string"},
					}},
					"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			}},
		},
	}
}

// widget is an object of the first definition.
func widget(metadata map[string]any) jsonObject {
	return jsonObject{"apiVersion": "a.example.com/v1", "kind": "Widget", "metadata": metadata}
}

// testClient does requests that must succeed with a code.
type testClient struct {
	*apiClient
	t   *testing.T
	ctx context.Context
}

func (c *testClient) must(code int, method, path string, body any) jsonObject {
	c.t.Helper()
	mediaType := ""
	if body != nil {
		mediaType = "application/json"
	}
	_, obj, err := c.do(c.ctx, method, path, mediaType, body, code)
	if err != nil {
		c.t.Fatal(err)
	}
	return obj
}

func serveDefinitions(t *testing.T) (*testClient, *Server) {
	t.Helper()
	return serveFrom(t, quiet(t.TempDir()))
}

func serveFrom(t *testing.T, c Config) (*testClient, *Server) {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client := &testClient{apiClient: clientOf(t, s), t: t, ctx: t.Context()}
	t.Cleanup(client.CloseIdleConnections)
	return client, s
}

// stored is how many objects of a resource the store has.
func (s *Server) stored(t *testing.T, resource string) int {
	t.Helper()
	snapshot, err := s.plane.Store.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Count(resource, "")
}

func conditionOf(obj jsonObject, typ string) string {
	list, _ := obj.at("status", "conditions").([]any)
	for _, item := range list {
		if c := jsonObject(item.(map[string]any)); c.text("type") == typ {
			return c.text("status") + " " + c.text("reason")
		}
	}
	return ""
}

// A type is served when the POST of its definition returns: its objects are pruned and defaulted, and their status is a
// subresource. When the definition is gone, so are the type and its objects. SPEC: EXT-1
func TestDefinitions(t *testing.T) {
	c, _ := serveDefinitions(t)
	made := c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	if got := conditionOf(made, "Established"); got != "True InitialNamesAccepted" {
		t.Errorf("Established: %q", got)
	}
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	made = c.must(201, http.MethodPost, widgets+"?fieldValidation=Ignore", jsonObject{
		"apiVersion": "a.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"colour": "red", "shape": "round"}, "status": map[string]any{"ready": true},
	})
	if got := fmt.Sprint(made.at("spec"), made.at("status"),
		made.at("metadata", "generation")); got != "map[colour:red size:3] <nil> 1" {
		t.Errorf("made is %s", got)
	}
	made["status"] = map[string]any{"ready": true}
	shown := c.must(200, http.MethodPut, widgets+"/w/status", made)
	if got := fmt.Sprint(shown.at("status"), shown.at("metadata", "generation")); got != "map[ready:true] 1" {
		t.Errorf("with a status: %s", got)
	}
	resources := c.must(200, http.MethodGet, "/apis/a.example.com/v1", nil)
	if list, _ := resources["resources"].([]any); len(list) != 2 {
		t.Errorf("discovery has %v", resources)
	}
	c.must(200, http.MethodDelete, definitions+"/widgets.a.example.com", nil)
	c.gone(definitions + "/widgets.a.example.com")
	c.unknown(widgets + "/w")
	c.unknown("/apis/a.example.com/v1")
	c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	if list := c.must(200, http.MethodGet, widgets, nil); fmt.Sprint(list["items"]) != "[]" {
		t.Errorf("defined again, there are %v", list["items"])
	}
}

// Discovery in both forms and both OpenAPI documents describe a type when the POST of its definition returns, and its
// new schema when a change of the definition does. SPEC: EXT-1, URI-8
func TestDocumentsDescribeADefinition(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	made := c.must(201, http.MethodPost, definitions, definition)
	sizes := func() string {
		v3 := c.must(200, http.MethodGet, "/openapi/v3/apis/a.example.com/v1", nil)
		v2 := c.must(200, http.MethodGet, "/openapi/v2", nil)
		size := func(doc jsonObject, at ...string) any {
			return doc.at(append(at, "com.example.a.v1.Widget", "properties", "spec", "properties", "size")...)
		}
		return fmt.Sprint(size(v3, "components", "schemas"), size(v2, "definitions"))
	}
	if got, want := sizes(), "map[default:3 type:integer] map[type:integer]"; got != want {
		t.Errorf("spec.size is %s, want %s", got, want)
	}
	index := c.must(200, http.MethodGet, "/openapi/v3", nil)
	before := fmt.Sprint(index.at("paths", "apis/a.example.com/v1"))
	if !strings.Contains(before, "hash=") {
		t.Errorf("the index has %s", before)
	}
	groups := c.must(200, http.MethodGet, "/apis", nil)
	if !strings.Contains(fmt.Sprint(groups["groups"]), "a.example.com/v1") {
		t.Errorf("/apis has %v", groups["groups"])
	}

	version := made.at("spec", "versions").([]any)[0]
	properties := jsonObject(version.(map[string]any)).at("schema", "openAPIV3Schema", "properties", "spec", "properties")
	properties.(map[string]any)["size"] = map[string]any{"type": "string", "description": "S to XL"}
	c.must(200, http.MethodPut, definitions+"/widgets.a.example.com", made)
	if got, want := sizes(), "map[description:S to XL type:string] map[description:S to XL type:string]"; got != want {
		t.Errorf("spec.size is %s, want %s", got, want)
	}
	index = c.must(200, http.MethodGet, "/openapi/v3", nil)
	if after := fmt.Sprint(index.at("paths", "apis/a.example.com/v1")); after == before {
		t.Errorf("the index has the same hash as before: %s", after)
	}
}

// unknown checks that a path is not served.
func (c *testClient) unknown(path string) {
	c.t.Helper()
	rs, err := c.send(c.ctx, http.MethodGet, path, "", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rs.Body.Close()
	if rs.StatusCode != http.StatusNotFound {
		c.t.Errorf("%s: %s", path, rs.Status)
	}
}

// gone waits until a path is no longer served.
func (c *testClient) gone(path string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		code, _, err := c.do(c.ctx, http.MethodGet, path, "", nil, 200, 404)
		if err != nil {
			c.t.Fatal(err)
		}
		if code == 404 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s is still there", path)
		}
	}
}

// An object with a finalizer delays the deletion of its definition, and no new objects can be created meanwhile.
// SPEC: EXT-1
func TestDefinitionWaitsForItsObjects(t *testing.T) {
	c, _ := serveDefinitions(t)
	c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	held := c.must(201, http.MethodPost, widgets,
		widget(map[string]any{"name": "held", "finalizers": []any{"example.com/held"}}))
	c.must(200, http.MethodDelete, definitions+"/widgets.a.example.com", nil)
	const pending, begun = "True InstanceDeletionPending", "True InstanceDeletionInProgress"
	for got := pending; got != begun; {
		got = conditionOf(c.must(200, http.MethodGet, definitions+"/widgets.a.example.com", nil), "Terminating")
		if got != pending && got != begun {
			t.Fatalf("Terminating: %q", got)
		}
	}
	refused := c.must(403, http.MethodPost, widgets, widget(map[string]any{"name": "late"}))
	if message := refused.text("message"); !strings.Contains(message,
		"create not allowed while custom resource definition is terminating") {
		t.Errorf("refused with %q", message)
	}
	for end := time.Now().Add(20 * time.Second); held.at("metadata", "deletionTimestamp") == nil; {
		if held = c.must(200, http.MethodGet, widgets+"/held", nil); time.Now().After(end) {
			t.Fatal("the object is not deleted")
		}
	}
	waits := c.must(200, http.MethodGet, definitions+"/widgets.a.example.com", nil)
	if got := conditionOf(waits, "Terminating"); got != begun {
		t.Errorf("Terminating: %q", got)
	}
	held["metadata"].(map[string]any)["finalizers"] = []any{}
	c.must(200, http.MethodPut, widgets+"/held", held)
	c.gone(definitions + "/widgets.a.example.com")
}

// No two definitions of a group have the same name; a definition that gives a name up passes it to the one that waits
// for it. SPEC: EXT-1
func TestNamesOfDefinitions(t *testing.T) {
	c, _ := serveDefinitions(t)
	c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	c.must(201, http.MethodPost, definitions, definitionOf("b.example.com", "gadgets", "Widget")) // another group
	second := c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "gadgets", "Widget"))
	if got := conditionOf(second, "NamesAccepted"); got != "False ListKindConflict" {
		t.Errorf("NamesAccepted: %q", got)
	}
	if got := conditionOf(second, "Established"); got != "False NotAccepted" {
		t.Errorf("Established: %q", got)
	}
	const gadgets = "/apis/a.example.com/v1/namespaces/default/gadgets"
	c.unknown(gadgets)
	c.must(200, http.MethodDelete, definitions+"/widgets.a.example.com", nil)
	c.gone(definitions + "/widgets.a.example.com")
	c.must(200, http.MethodGet, gadgets, nil)
	second = c.must(200, http.MethodGet, definitions+"/gadgets.a.example.com", nil)
	if got := conditionOf(second, "Established"); got != "True InitialNamesAccepted" {
		t.Errorf("Established, when the name was free: %q", got)
	}
}

// A watch ends when the form of its objects changes, and cannot be resumed from before the change; changes that do not
// affect the form, such as an annotation or a printer column, do not end it. SPEC: EXT-1
func TestDefinitionEndsWatches(t *testing.T) {
	c, _ := serveDefinitions(t)
	const path, widgets = definitions + "/widgets.a.example.com", "/apis/a.example.com/v1/namespaces/default/widgets"
	definition := c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	since := c.must(200, http.MethodGet, widgets, nil).text("metadata", "resourceVersion")
	watch, err := c.send(c.ctx, http.MethodGet, widgets+"?watch=1&resourceVersion="+since, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	events := json.NewDecoder(watch.Body)
	next := func() (string, error) {
		var event struct {
			Type   string
			Object jsonObject
		}
		err := events.Decode(&event)
		return event.Type + " " + event.Object.text("metadata", "name"), err
	}
	definition["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	definition = c.must(200, http.MethodPut, path, definition)
	version := definition.at("spec", "versions").([]any)[0].(map[string]any)
	version["additionalPrinterColumns"] = []any{map[string]any{"name": "Size", "type": "integer",
		"jsonPath": ".spec.size"}}
	definition = c.must(200, http.MethodPut, path, definition)
	c.must(201, http.MethodPost, widgets, widget(map[string]any{"name": "one"}))
	if got, err := next(); got != "ADDED one" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	version = definition.at("spec", "versions").([]any)[0].(map[string]any)
	spec := jsonObject(version).at("schema", "openAPIV3Schema", "properties", "spec", "properties").(map[string]any)
	spec["weight"] = map[string]any{"type": "integer", "default": 1}
	c.must(200, http.MethodPut, path, definition)
	if got, err := next(); !errors.Is(err, io.EOF) {
		t.Fatalf("%q, %v", got, err)
	}
	gone := c.must(200, http.MethodGet, widgets+"?watch=1&timeoutSeconds=1&resourceVersion="+since, nil)
	if gone.text("type") != "ERROR" || fmt.Sprint(gone.at("object", "code")) != "410" {
		t.Errorf("continued from before: %v", gone)
	}
	if got := fmt.Sprint(c.must(200, http.MethodGet, widgets+"/one", nil).at("spec")); got != "<nil>" {
		t.Errorf("spec is %s", got)
	}
}

// A URL of the wrong scope is one that does not exist: for a custom type there is a path for each verb, and only lists
// and watches span all namespaces. SPEC: URI-1, EXT-1
func TestScopeOfCustomTypes(t *testing.T) {
	c, _ := serveDefinitions(t)
	cluster := definitionOf("a.example.com", "gadgets", "Gadget")
	cluster["spec"].(map[string]any)["scope"] = "Cluster"
	c.must(201, http.MethodPost, definitions, cluster)
	c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	const group = "/apis/a.example.com/v1"
	gadget := jsonObject{"apiVersion": "a.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"}}
	c.must(201, http.MethodPost, group+"/gadgets", gadget)
	c.must(201, http.MethodPost, group+"/namespaces/default/widgets", widget(map[string]any{"name": "a"}))
	for plural, body := range map[string]jsonObject{
		"/widgets": widget(map[string]any{"name": "a"}), "/namespaces/default/gadgets": gadget,
	} {
		for _, test := range []struct{ method, path string }{
			{http.MethodPost, ""}, {http.MethodPut, ""}, {http.MethodDelete, ""}, {http.MethodPatch, ""},
			{http.MethodGet, "/a"}, {http.MethodPut, "/a"}, {http.MethodDelete, "/a"}, {http.MethodPatch, "/a"},
			{http.MethodGet, "/a/status"}, {http.MethodPut, "/a/status"}, {http.MethodPatch, "/a/status"},
		} {
			mediaType := "application/json"
			if test.method == http.MethodPatch {
				mediaType = "application/merge-patch+json"
			}
			rs, err := c.send(c.ctx, test.method, group+plural+test.path, mediaType, body)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(rs.Body)
			rs.Body.Close()
			if got := string(text); err != nil || rs.StatusCode != 404 || got != "404 page not found\n" {
				t.Errorf("%s %s%s: %s %q", test.method, plural, test.path, rs.Status, got)
			}
		}
	}
	c.must(200, http.MethodGet, group+"/widgets", nil)
	c.unknown(group + "/namespaces/default/gadgets")
}

// A definition whose webhook has certificates that cannot be read is not established until they can. Its objects are
// served, since its names are accepted, and discovery does not show its type. SPEC: EXT-1
func TestDefinitionWithABadCABundle(t *testing.T) {
	c, s := serveDefinitions(t)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	spec := definition["spec"].(map[string]any)
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": "https://localhost/convert", "caBundle": "Cg=="},
	}}
	made := c.must(201, http.MethodPost, definitions, definition)
	if got := conditionOf(made, "Established"); got != "False InvalidCABundle" {
		t.Errorf("Established: %q", got)
	}
	if got := conditionOf(made, "NamesAccepted"); got != "True NoConflicts" {
		t.Errorf("NamesAccepted: %q", got)
	}
	c.must(200, http.MethodGet, "/apis/a.example.com/v1/widgets", nil)
	c.unknown("/apis/a.example.com/v1")
	c.unknown("/openapi/v3/apis/a.example.com/v1")
	made.at("spec", "conversion", "webhook", "clientConfig").(map[string]any)["caBundle"] = s.certificates.pki.PEM
	made = c.must(200, http.MethodPut, definitions+"/widgets.a.example.com", made)
	if got := conditionOf(made, "Established"); got != "True InitialNamesAccepted" {
		t.Errorf("Established, with a certificate: %q", got)
	}
	c.must(200, http.MethodGet, "/apis/a.example.com/v1", nil)
}

// A null in an apply is left to validation: it is an error where the schema is not nullable, and stays where it is. In
// any other body a null that is not nullable is dropped. SPEC: SSA-2, EXT-1
func TestApplyOfNull(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	version := definition.at("spec", "versions").([]any)[0].(map[string]any)
	field := func(more map[string]any) map[string]any {
		m := map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string"}}}
		maps.Copy(m, more)
		return m
	}
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "properties": map[string]any{
			"plain": field(nil), "nullable": field(map[string]any{"nullable": true}),
			"filled": field(map[string]any{"default": map[string]any{"a": "default"}}),
			"open":   map[string]any{"x-kubernetes-preserve-unknown-fields": true},
		}},
	}}}
	c.must(201, http.MethodPost, definitions, definition)
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	apply := func(code int, name, field string, value any) jsonObject {
		t.Helper()
		body := widget(map[string]any{"name": name})
		body["spec"] = map[string]any{field: value}
		_, answer, err := c.do(c.ctx, http.MethodPatch, widgets+"/"+name+"?fieldManager=me", "application/apply-patch+yaml",
			body, code)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for _, test := range []struct{ field, want string }{
		{"nullable", "map[filled:map[a:default] nullable:<nil>]"}, {"filled", "map[filled:map[a:default]]"},
		{"open", "map[filled:map[a:default]]"},
	} {
		apply(201, test.field, test.field, map[string]any{"a": "1"})
		for _, shown := range []jsonObject{
			apply(200, test.field, test.field, nil), c.must(200, http.MethodGet, widgets+"/"+test.field, nil),
			apply(201, test.field+"-made", test.field, nil),
		} {
			if got := fmt.Sprint(shown.at("spec")); got != test.want {
				t.Errorf("%s: null: %s, want %s", test.field, got, test.want)
			}
		}
	}
	apply(201, "plain", "plain", map[string]any{"a": "1"})
	const refused = `spec.plain: Invalid value: "null": spec.plain in body must be of type object: "null"`
	for _, name := range []string{"plain", "made"} {
		if got := apply(422, name, "plain", nil).text("message"); !strings.Contains(got, refused) {
			t.Errorf("%s: %s", name, got)
		}
	}
	_, patched, err := c.do(c.ctx, http.MethodPatch, widgets+"/plain", "application/json-patch+json",
		[]any{map[string]any{"op": "replace", "path": "/spec/plain", "value": nil}}, 200)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(patched.at("spec")); got != "map[filled:map[a:default]]" {
		t.Errorf("a JSON Patch to null: %s", got)
	}
}

// slowly sends a request, calls meanwhile when the server begins to read its body, sends the body, and returns the code
// and the message of the answer. The server has found the type of the request by then: it asks for a body (100
// Continue) with its first read of it.
func (c *testClient) slowly(method, path, mediaType string, body any, meanwhile func()) (int, string) {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	reader, writer := io.Pipe()
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{Got100Continue: func() {
		go func() {
			defer writer.Close() // also if meanwhile ends the test
			meanwhile()
			writer.Write(text)
		}()
	}})
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, reader)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaType)
	r.Header.Set("Expect", "100-continue")
	transport := c.Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	transport.ExpectContinueTimeout = time.Minute // the default sends the body at once
	rs, err := transport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rs.Body.Close()
	var answer jsonObject
	if err := json.NewDecoder(rs.Body).Decode(&answer); err != nil {
		c.t.Fatal(err)
	}
	return rs.StatusCode, answer.text("message")
}

// A write belongs to the definition under which its type was found. If that is deleted and made again before the body
// has arrived, the write fails: it would store an object under a scope and a schema that no longer exist, which would
// be listed and could be neither read nor deleted, or change an object of the new definition by the old schema.
//
// SPEC: EXT-3
func TestWritesOfAnOldDefinition(t *testing.T) {
	const path, all = definitions + "/widgets.a.example.com", "/apis/a.example.com/v1/widgets"
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	with := func(metadata map[string]any, colour string) jsonObject {
		w := widget(metadata)
		w["spec"] = map[string]any{"colour": colour}
		return w
	}
	old, named := with(map[string]any{"name": "w"}, "old"), map[string]any{"name": "w"}
	for _, test := range []struct {
		name, method, url, mediaType string
		body                         jsonObject
	}{
		{"create", http.MethodPost, widgets, "application/json", old},
		{"update", http.MethodPut, widgets + "/w", "application/json", old},
		{"status", http.MethodPut, widgets + "/w/status", "application/json", old},
		{"patch", http.MethodPatch, widgets + "/w", "application/merge-patch+json", old},
		{"apply", http.MethodPatch, widgets + "/w?fieldManager=me&force=1", "application/apply-patch+yaml", old},
		{"delete", http.MethodDelete, widgets + "/w", "application/json",
			jsonObject{"apiVersion": "v1", "kind": "DeleteOptions"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, s := serveDefinitions(t)
			again := func(change func(definition jsonObject)) {
				if change != nil {
					c.must(200, http.MethodDelete, path, nil)
					c.gone(path)
				}
				definition := definitionOf("a.example.com", "widgets", "Widget")
				if change != nil {
					change(definition)
				}
				c.must(201, http.MethodPost, definitions, definition)
			}
			again(nil)
			code, message := c.slowly(test.method, test.url, test.mediaType, test.body, func() {
				again(func(definition jsonObject) { definition["spec"].(map[string]any)["scope"] = "Cluster" })
			})
			if list := c.must(200, http.MethodGet, all, nil); code != http.StatusNotFound ||
				len(list["items"].([]any)) > 0 || s.stored(t, "a.example.com/widgets") > 0 {
				t.Errorf("made again cluster-wide: %d %s, and there are %v", code, message, list["items"])
			}
			again(func(jsonObject) {})
			code, message = c.slowly(test.method, test.url, test.mediaType, test.body, func() {
				again(func(definition jsonObject) {
					version := definition.at("spec", "versions").([]any)[0].(map[string]any)
					version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
						"properties": map[string]any{"spec": map[string]any{"type": "object",
							"properties": map[string]any{"weight": map[string]any{"type": "integer"}}}}}}
				})
				made := widget(named)
				made["spec"] = map[string]any{"weight": 7}
				c.must(201, http.MethodPost, widgets, made)
			})
			if code < 400 {
				t.Errorf("made again with another schema: %d", code)
			}
			shown := c.must(200, http.MethodGet, widgets+"/w", nil)
			if got := fmt.Sprint(shown.at("spec"), shown.at("status")); got != "map[weight:7] <nil>" {
				t.Errorf("%d %s; the object of the new definition became %s", code, message, got)
			}
		})
	}
}

// Objects are created while their definition is deleted and created again: no object is left without a definition, and
// a client sees only success, or that the type is gone or being deleted. SPEC: EXT-1
func TestDefinitionsComeAndGoUnderLoad(t *testing.T) {
	c, s := serveDefinitions(t)
	const path, widgets = definitions + "/widgets.a.example.com", "/apis/a.example.com/v1/namespaces/default/widgets"
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var made, refused atomic.Int64
	for w := range 6 {
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				rs, err := c.send(ctx, http.MethodPost, widgets, "application/json",
					widget(map[string]any{"name": fmt.Sprintf("w%d-%d", w, i)}))
				if err != nil {
					continue // the end
				}
				io.Copy(io.Discard, rs.Body)
				rs.Body.Close()
				switch rs.StatusCode {
				case 201:
					made.Add(1)
				case 403, 404:
					refused.Add(1)
				default:
					t.Errorf("creating: %s", rs.Status)
				}
			}
		})
	}
	for range 8 {
		before := made.Load()
		c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
		for end := time.Now().Add(20 * time.Second); made.Load() < before+20 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		c.must(200, http.MethodDelete, path, nil)
		c.gone(path)
		if left := s.stored(t, "a.example.com/widgets"); left > 0 {
			t.Errorf("%d objects are left without a definition", left)
		}
	}
	stop()
	work.Wait()
	if made.Load() < 100 || refused.Load() == 0 {
		t.Errorf("%d were made and %d refused: that is no load", made.Load(), refused.Load())
	}
}

// The deletion of a definition continues after a restart. SPEC: EXT-1
func TestDefinitionsAreEmptiedAfterARestart(t *testing.T) {
	c, s := serveDefinitions(t)
	config := s.config
	const path, widgets = definitions + "/widgets.a.example.com", "/apis/a.example.com/v1/namespaces/default/widgets"
	c.must(201, http.MethodPost, definitions, definitionOf("a.example.com", "widgets", "Widget"))
	for i := range 50 {
		c.must(201, http.MethodPost, widgets, widget(map[string]any{"name": fmt.Sprintf("w%d", i)}))
	}
	c.must(201, http.MethodPost, widgets, widget(map[string]any{"name": "held", "finalizers": []any{"example.com/held"}}))
	c.must(200, http.MethodDelete, path, nil)
	c.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, s = serveFrom(t, config)
	for end := time.Now().Add(20 * time.Second); s.stored(t, "a.example.com/widgets") > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d objects are left", s.stored(t, "a.example.com/widgets"))
		}
	}
	held := c.must(200, http.MethodGet, widgets+"/held", nil)
	held["metadata"].(map[string]any)["finalizers"] = []any{}
	c.must(200, http.MethodPut, widgets+"/held", held)
	c.gone(path)
}

// A definition of a built-in type is never served, and its deletion does not delete objects of that type. SPEC: EXT-1
func TestDefinitionOfABuiltinType(t *testing.T) {
	c, _ := serveDefinitions(t)
	const leases, path = "/apis/coordination.k8s.io/v1/namespaces/default/leases",
		definitions + "/leases.coordination.k8s.io"
	c.must(201, http.MethodPost, leases, jsonObject{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "one"},
		"spec": map[string]any{"holderIdentity": "me"},
	})
	definition := definitionOf("coordination.k8s.io", "leases", "Lease")
	definition["metadata"].(map[string]any)["annotations"] = map[string]any{
		"api-approved.kubernetes.io": "unapproved, a test",
	}
	definition = c.must(201, http.MethodPost, definitions, definition)
	if got := conditionOf(definition, "KubernetesAPIApprovalPolicyConformant"); got != "False UnapprovedAnnotation" {
		t.Errorf("approval: %q", got)
	}
	if got := c.must(200, http.MethodGet, leases+"/one", nil); fmt.Sprint(got.at("spec", "holderIdentity")) != "me" {
		t.Errorf("beside the definition, it is %v", got)
	}
	c.must(200, http.MethodDelete, path, nil)
	c.gone(path)
	if got := c.must(200, http.MethodGet, leases+"/one", nil); fmt.Sprint(got.at("spec", "holderIdentity")) != "me" {
		t.Errorf("after the definition, it is %v", got)
	}
}

// With the admission plugin disabled, it is not checked whether the namespace exists. SPEC: AUTH-3, RUN-1, URI-5
func TestWithoutNamespaceLifecycle(t *testing.T) {
	config := quiet(t.TempDir())
	config.DisableAdmission = []string{"NamespaceLifecycle"}
	c, _ := serveFrom(t, config)
	c.must(201, http.MethodPost, "/api/v1/namespaces/nowhere/configmaps",
		jsonObject{"metadata": map[string]any{"name": "c"}})
	c.must(200, http.MethodDelete, "/api/v1/namespaces/default", nil)
}

// A custom type in a built-in group version is served, and not in discovery. SPEC: EXT-1, URI-8
func TestDefinitionInABuiltinGroupVersion(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := definitionOf("coordination.k8s.io", "widgets", "Widget")
	definition["metadata"].(map[string]any)["annotations"] = map[string]any{
		"api-approved.kubernetes.io": "unapproved, a test",
	}
	c.must(201, http.MethodPost, definitions, definition)
	c.must(200, http.MethodGet, "/apis/coordination.k8s.io/v1/widgets", nil)
	list, _ := c.must(200, http.MethodGet, "/apis/coordination.k8s.io/v1", nil)["resources"].([]any)
	if len(list) != 1 {
		t.Errorf("discovery tells of %v", list)
	}
}

// The metadata of an embedded object is validated, too. SPEC: EXT-1, VAL-1
func TestEmbeddedMetadata(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	version := definition.at("spec").(map[string]any)["versions"].([]any)[0].(map[string]any)
	fields := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	fields["properties"].(map[string]any)["template"] = map[string]any{
		"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
	}
	c.must(201, http.MethodPost, definitions, definition)
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	wrong := widget(map[string]any{"name": "wrong"})
	wrong["template"] = map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "labels": map[string]any{"a b": "c"}}}
	if refused := c.must(422, http.MethodPost, widgets, wrong); !strings.Contains(refused.text("message"),
		"template.metadata.labels") {
		t.Errorf("refused with %q", refused.text("message"))
	}
}
