package server

import (
	"net/http"
	"strings"
	"testing"
)

// ComponentStatuses tell whether the store, a kube-controller-manager and a kube-scheduler are healthy. They have no
// resourceVersion, and cannot be watched.
//
// SPEC: RUN-3
func TestComponentStatuses(t *testing.T) {
	c, s := serveFrom(t, quiet(t.TempDir()))
	const path = "/api/v1/componentstatuses"
	const store = `"etcd-0"},"conditions":[{"message":"ok","status":"True","type":"Healthy"}]}`
	list := c.must(200, http.MethodGet, path, nil)
	var names []string
	for _, item := range list.at("items").([]any) {
		names = append(names, jsonObject(item.(map[string]any)).text("metadata", "name"))
	}
	if got := strings.Join(names, " "); got != "controller-manager scheduler etcd-0" {
		t.Errorf("there are %s", got)
	}
	if meta := list.at("metadata").(map[string]any); len(meta) > 0 {
		t.Errorf("the metadata of the list is %v", meta)
	}
	for of, want := range map[string]string{
		path: `{"metadata":{"name":` + store + "]",
		path + "?fieldSelector=metadata.name%3Detcd-0": `"items":[{"metadata":{"name":` + store + "]",
		path + "/etcd-0":                         `{"apiVersion":"v1","kind":"ComponentStatus","metadata":{"name":` + store,
		path + "?labelSelector=a":                `"items":[]`,
		path + "?limit=1&resourceVersion=999999": store,
		path + "/nope":                           `"componentstatus \"nope\" not found"`,
		path + "?watch=1":                        `watch is not supported on resources of kind \"componentstatuses\"`,
	} {
		if _, text := c.plain(of); !strings.Contains(text, want) {
			t.Errorf("%s: %s\nhas no %s", of, text, want)
		}
	}
	for accept, want := range map[string]string{
		"application/json;as=Table;g=meta.k8s.io;v=v1":                     `"cells":["etcd-0","Healthy","ok",""]`,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": `"metadata":{"name":"etcd-0"}}]`,
		"application/yaml":                    "name: etcd-0",
		"application/vnd.kubernetes.protobuf": "\x06etcd-0",
	} {
		if code, text := c.plain(path, "Accept", accept); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %q\nhas no %q", accept, code, text, want)
		}
	}
	if err := s.plane.Store.Close(); err != nil {
		t.Fatal(err)
	}
	conditions := c.must(200, http.MethodGet, path+"/etcd-0", nil).at("conditions").([]any)
	if status := conditions[0].(map[string]any); status["status"] != "False" || status["error"] == "" ||
		status["message"] != nil {
		t.Errorf("without its store the server says %v", status)
	}
}
