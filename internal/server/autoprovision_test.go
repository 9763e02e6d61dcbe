package server

import (
	"net/http"
	"testing"
)

// With the plugin NamespaceAutoProvision, a create makes its namespace; a dry run does not, and is refused.
//
// SPEC: AUTH-3, URI-5
func TestNamespaceAutoProvision(t *testing.T) {
	config := quiet(t.TempDir())
	config.EnableAdmission = []string{"NamespaceAutoProvision"}
	c, _ := serveFrom(t, config)
	body := jsonObject{"metadata": map[string]any{"name": "c"}}
	c.must(404, http.MethodPost, "/api/v1/namespaces/new/configmaps?dryRun=All", body)
	c.must(404, http.MethodGet, "/api/v1/namespaces/new", nil)
	c.must(201, http.MethodPost, "/api/v1/namespaces/new/configmaps", body)
	created := c.must(200, http.MethodGet, "/api/v1/namespaces/new", nil)
	metadata, _ := created.at("metadata").(map[string]any)
	managers, _ := metadata["managedFields"].([]any)
	if len(managers) != 1 || managers[0].(map[string]any)["manager"] != "kube-apiserver" {
		t.Errorf("the managers of the namespace are %v", managers)
	}
	c.must(409, http.MethodPost, "/api/v1/namespaces/new/configmaps", body)
}
