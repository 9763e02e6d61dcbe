// Package user is a module of somebody else, which tests against Plinth as go get fetches it.
package user

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"example.com/plinth/merge"
	"example.com/plinth/object"
	"example.com/plinth/plinthtest"
	"example.com/plinth/schema"
)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.net}
spec:
  group: example.net
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`

const widgets = "/apis/example.net/v1/namespaces/default/widgets"

func send(t *testing.T, p *plinthtest.Plane, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, p.Host()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: p.Transport()}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s, %v, %s", method, path, response.Status, err, text)
	}
	return string(text)
}

func TestPlane(t *testing.T) {
	files := fstest.MapFS{"widgets.yaml": {Data: []byte(definition)}}
	p := plinthtest.New(t, plinthtest.CRDs(files, "*.yaml"))
	send(t, p, http.MethodPost, widgets,
		`{"apiVersion": "example.net/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}`)
	parsed, err := object.ParseJSON([]byte(send(t, p, http.MethodGet, widgets+"/w", "")))
	if err != nil {
		t.Fatal(err)
	}
	if size := parsed.Value.At("spec", "size"); !object.Equal(size, object.IntOf(3)) {
		t.Errorf("the size is %s", object.AppendJSON(nil, size))
	}
}

func TestVirtualTime(t *testing.T) {
	plinthtest.Bubble(t, func(t *testing.T, p *plinthtest.Plane) {
		began := time.Now()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if took := time.Since(began); took < 24*time.Hour {
			t.Errorf("a day took %s", took)
		}
		send(t, p, http.MethodGet, "/api/v1/namespaces/default", "")
	})
}

func TestMerge(t *testing.T) {
	parsed, err := object.ParseYAML([]byte("{apiVersion: example.net/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}"))
	if err != nil {
		t.Fatal(err)
	}
	kind := &merge.Kind{Type: &schema.Type{Kind: schema.Any}}
	applied, err := kind.Apply(object.Nil, parsed.Value, merge.Writer{Manager: "m", APIVersion: "example.net/v1",
		Now: "2030-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(object.AppendObject(nil, applied)); !strings.Contains(text, `"manager":"m"`) {
		t.Errorf("nobody owns the fields of %s", text)
	}
}
