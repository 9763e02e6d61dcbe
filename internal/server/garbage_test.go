package server

import (
	"net/http"
	"testing"
	"time"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// ownedBy is a ConfigMap of this name with one owner.
func ownedBy(name, apiVersion, kind, owner, uid string) jsonObject {
	return jsonObject{"metadata": map[string]any{"name": name, "ownerReferences": []any{map[string]any{
		"apiVersion": apiVersion, "kind": kind, "name": owner, "uid": uid, "blockOwnerDeletion": true,
	}}}}
}

// stays checks that an object exists, is not being deleted, and continues to exist.
func (c *testClient) stays(path string) {
	c.t.Helper()
	for range 20 {
		if obj := c.must(200, http.MethodGet, path, nil); obj.text("metadata", "deletionTimestamp") != "" {
			c.t.Fatalf("%s is being deleted", path)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Objects of custom types own and are owned; an owner of a type that is not served counts as neither existing nor gone,
// until the type is served.
//
// SPEC: DEL-5, EXT-1
func TestGarbageOfCustomTypes(t *testing.T) {
	c, _ := serveDefinitions(t)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	versions := definition.at("spec", "versions").([]any)
	older := map[string]any{}
	for key, value := range versions[0].(map[string]any) {
		older[key] = value
	}
	older["name"], older["storage"] = "v1beta1", false
	definition["spec"].(map[string]any)["versions"] = append(versions, older)
	c.must(201, http.MethodPost, definitions, definition)
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	uid := c.must(201, http.MethodPost, widgets, widget(map[string]any{"name": "w"})).text("metadata", "uid")

	// An owner may be named in any version that is served, and a custom object may be owned itself.
	map1 := c.must(201, http.MethodPost, configMaps, ownedBy("older", "a.example.com/v1beta1", "Widget", "w", uid))
	c.must(201, http.MethodPost, configMaps, ownedBy("unserved", "a.example.com/v1alpha1", "Widget", "w", uid))
	below := ownedBy("below", "v1", "ConfigMap", "older", map1.text("metadata", "uid"))
	below["apiVersion"], below["kind"] = "a.example.com/v1", "Widget"
	c.must(201, http.MethodPost, widgets, below)
	c.must(201, http.MethodPost, configMaps, ownedBy("early", "b.example.com/v1", "Gadget", "g", "nobody"))
	for _, name := range []string{"/older", "/unserved", "/early"} {
		c.stays(configMaps + name)
	}
	c.stays(widgets + "/below")

	c.must(200, http.MethodDelete, widgets+"/w?propagationPolicy=Foreground", nil)
	for _, path := range []string{configMaps + "/older", widgets + "/below"} {
		c.gone(path)
	}
	// "unserved" blocks the deletion, and it is unknown whether its owner is gone.
	if w := c.must(200, http.MethodGet, widgets+"/w", nil); w.text("metadata", "deletionTimestamp") == "" {
		t.Error("the widget is not being deleted")
	}
	c.must(200, http.MethodDelete, widgets+"/w?propagationPolicy=Background", nil)
	c.gone(widgets + "/w")
	c.gone(configMaps + "/unserved") // it names the deleted owner, in any version

	// The type of an owner is defined.
	c.must(201, http.MethodPost, definitions, definitionOf("b.example.com", "gadgets", "Gadget"))
	c.gone(configMaps + "/early")

	// The type of an owner is deleted, and the owner with it.
	uid = c.must(201, http.MethodPost, widgets, widget(map[string]any{"name": "w"})).text("metadata", "uid")
	c.must(201, http.MethodPost, configMaps, ownedBy("last", "a.example.com/v1", "Widget", "w", uid))
	c.must(200, http.MethodDelete, definitions+"/widgets.a.example.com", nil)
	c.gone(definitions + "/widgets.a.example.com")
	c.gone(configMaps + "/last")
}

// Deletes on a server without a collector are completed by the next one that has a collector: all that it needs is
// stored.
//
// SPEC: DEL-2, DEL-5
func TestGarbageIsCollectedAfterARestart(t *testing.T) {
	dir := t.TempDir()
	config := func(controllers ...string) Config {
		config := quiet(dir)
		config.Controllers = controllers
		return config
	}
	c, s := serveFrom(t, config())
	make := func(name, owner, uid string) string {
		body := ownedBy(name, "v1", "ConfigMap", owner, uid)
		if owner == "" {
			body = jsonObject{"metadata": map[string]any{"name": name}}
		}
		return c.must(201, http.MethodPost, configMaps, body).text("metadata", "uid")
	}
	a, b, o := make("a", "", ""), make("b", "", ""), make("o", "", "")
	make("a1", "a", a)
	make("b1", "b", b)
	make("o1", "o", o)
	make("never", "x", "nobody")
	c.must(200, http.MethodDelete, configMaps+"/a?propagationPolicy=Foreground", nil)
	c.must(200, http.MethodDelete, configMaps+"/b?propagationPolicy=Background", nil)
	c.must(200, http.MethodDelete, configMaps+"/o?propagationPolicy=Orphan", nil)
	for _, name := range []string{"/a1", "/b1", "/o1", "/never"} {
		c.stays(configMaps + name)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, _ = serveFrom(t, config("garbage-collector-controller"))
	for _, name := range []string{"/a", "/a1", "/b1", "/o", "/never"} {
		c.gone(configMaps + name)
	}
	c.stays(configMaps + "/o1")
	if orphan := c.must(200, http.MethodGet, configMaps+"/o1", nil); orphan.at("metadata", "ownerReferences") != nil {
		t.Errorf("left is %v", orphan["metadata"])
	}
}

// --enable-garbage-collector=false: a delete adds no finalizer that no controller would remove.
//
// SPEC: DEL-2
func TestWithoutGarbageCollection(t *testing.T) {
	config := quiet(t.TempDir())
	config.GarbageCollection = false
	c, _ := serveFrom(t, config)
	for _, policy := range []string{"Foreground", "Orphan", "Background"} {
		c.must(201, http.MethodPost, configMaps, jsonObject{"metadata": map[string]any{"name": "a"}})
		c.must(200, http.MethodDelete, configMaps+"/a?propagationPolicy="+policy, nil)
		c.must(404, http.MethodGet, configMaps+"/a", nil)
	}
}
