package discovery

import (
	"slices"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

// remote is a group version with a resource, and a definition that the built-in types have, too.
func remote(group, version, kind string) *Remote {
	text := object.StringOf
	path := "/apis/" + group + "/" + version + "/things"
	return &Remote{
		Group: group, Version: version, GroupPriority: 1000, VersionPriority: 100,
		Discovery: object.Fields("version", text(version), "resources", object.ListOf(object.Fields(
			"resource", text("things"), "responseKind", responseKind("", "", kind), "scope", text("Cluster"),
			"singularResource", text(""), "verbs", object.Strings("get"))), "freshness", text("Stale")),
		OpenAPI3: []byte(`{"openapi":"3.0.0","paths":{"` + path + `":{}}}`),
		Paths: []object.Member{{Key: path, Value: object.Fields("get", object.Fields("description", text(kind),
			"schema", object.Fields("$ref", text("#/definitions/"+modelObjectMeta))))}},
		Definitions: []object.Member{
			{Key: "example." + kind, Value: object.Fields("type", text("object"))},
			{Key: modelObjectMeta, Value: object.Fields("type", text("string"))},
		},
	}
}

// getter returns a function that returns a document.
func getter(t *testing.T, d *Documents) func(path, accept string) object.Value {
	return func(path, accept string) object.Value {
		t.Helper()
		doc, ok, err := d.Get(path, accept)
		if !ok || err != nil {
			t.Fatalf("%s: %v, %v", path, ok, err)
		}
		text, err := doc.Plain()
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, text)
	}
}

// The documents have the group versions of backends beside those of the engine, in every encoding, and in place of
// those that both have. They follow a change of either, and what did not change is not printed again.
//
// SPEC: URI-8
func TestDocumentsHaveRemoteGroupVersions(t *testing.T) {
	var remotes []*Remote
	d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
		Remotes: func() []*Remote { return remotes }})
	get := getter(t, d)
	names := func(path, accept, list string, name ...string) (all []string) {
		t.Helper()
		for _, item := range get(path, accept).At(list).Items() {
			all = append(all, item.At(name...).Str())
		}
		return all
	}
	without := names("/apis", aggregatedJSON, "items", "metadata", "name")
	printed := d.counters.aggregated.Load()
	list := names("/apis", "", "groups", "name")

	apps := remote("apps", "v1", "App")
	apps.GroupPriority = 17800 // that of the group as it was
	remotes = []*Remote{remote("metrics.example", "v1", "Metric"), apps, remote("batch", "v2", "Batch")}
	if got := names("/apis", aggregatedJSON, "items", "metadata", "name"); !slices.Equal(got,
		append(without, "metrics.example")) {
		t.Errorf("aggregated: %v", got)
	}
	if got := names("/apis", "", "groups", "name"); !slices.Equal(got, append(list, "metrics.example")) {
		t.Errorf("/apis: %v", got)
	}
	if more := d.counters.aggregated.Load() - printed; more != 3 {
		t.Errorf("%d parts of aggregated discovery were printed again", more)
	}
	if got := names("/apis/batch", "", "versions", "version"); !slices.Equal(got, []string{"v2", "v1"}) {
		t.Errorf("/apis/batch: %v", got)
	}
	for _, group := range get("/apis", aggregatedJSON).At("items").Items() {
		for _, v := range group.At("versions").Items() {
			name := group.At("metadata", "name").Str() + "/" + v.At("version").Str()
			stale := slices.Contains([]string{"metrics.example/v1", "apps/v1", "batch/v2"}, name)
			if (v.At("freshness").Str() == "Stale") != stale || stale && v.At("resources").Len() != 1 {
				t.Errorf("aggregated: %s: %s", name, object.AppendJSON(nil, v))
			}
		}
	}
	for _, r := range remotes { // who asks for it asks the backend
		if _, ok, _ := d.Get("/apis/"+r.Group+"/"+r.Version, ""); ok {
			t.Errorf("the resources of %s/%s are served", r.Group, r.Version)
		}
	}
	index := get("/openapi/v3", "").At("paths")
	for _, r := range remotes {
		name := "apis/" + r.Group + "/" + r.Version
		doc, ok, err := d.Get("/openapi/v3/"+name, "")
		if !ok || err != nil || string(doc.Body) != string(r.OpenAPI3) ||
			doc.URL != index.At(name, "serverRelativeURL").Str() {
			t.Errorf("%s: %+v %v %v", name, doc, ok, err)
		}
	}
	v2 := get("/openapi/v2", "")
	if paths := v2.At("paths"); paths.At("/apis/metrics.example/v1/things", "get", "description").Str() != "Metric" ||
		!paths.At("/apis/metrics.example/").IsNull() || !paths.At("/apis/apps/v1/deployments").IsNull() ||
		paths.At("/apis/batch/v1/jobs").IsNull() {
		t.Error("the paths of OpenAPI v2 are not those that are served")
	}
	if models := v2.At("definitions"); models.At("example.Batch", "type").Str() != "object" ||
		models.At(modelObjectMeta, "type").Str() != "object" || models.At(modelObjectMeta+"_v2", "type").Str() != "string" ||
		!models.At(modelObjectMeta+"_v3").IsNull() {
		t.Error("the definitions of OpenAPI v2 are not those of the engine and of the backends")
	}
	if schema := v2.At("paths", "/apis/metrics.example/v1/things", "get", "schema", "$ref").Str(); schema !=
		"#/definitions/"+modelObjectMeta+"_v2" {
		t.Errorf("a definition with another name is referred to as %q", schema)
	}
	if doc, _, err := d.Get("/openapi/v2", mediaOpenAPI2); err != nil {
		t.Error(err)
	} else if text, err := doc.Plain(); err != nil || !strings.Contains(string(text), "example.Metric") {
		t.Errorf("OpenAPI v2 as protobuf has no definition of a backend: %v", err)
	}

	remotes = []*Remote{remotes[0]}
	if got := names("/apis/batch", "", "versions", "version"); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("/apis/batch without the backend: %v", got)
	}
	if _, ok, _ := d.Get("/apis/apps/v1", ""); !ok {
		t.Error("apps/v1 is not the engine's again")
	}
}

// Definitions such as that of watch events have descriptions of this server's own. Those of a backend are the same all
// the same, and get no other names, unless they differ in more.
//
// SPEC: URI-8
func TestWatchEventsOfBackendsAreNotRenamed(t *testing.T) {
	for _, row := range []struct{ kind, want string }{{"string", modelWatch}, {"integer", modelWatch + "_v2"}} {
		r := remote("a.example.com", "v1", "Thing")
		event := parse(t, []byte(`{"description":"Event","properties":{"object":{"$ref":"#/definitions/`+
			`io.k8s.apimachinery.pkg.runtime.RawExtension","description":"Object"},"type":{"type":"`+row.kind+`"}},"required":`+
			`["type","object"],"type":"object"}`))
		const quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
		r.Definitions = []object.Member{{Key: modelWatch, Value: event}, {Key: quantity, Value: object.Fields("description",
			object.StringOf("Quantity"), "type", object.StringOf("string"))}}
		r.Paths[0].Value = object.Fields("$ref", object.StringOf("#/definitions/"+modelWatch))
		d := New(Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})), Version: testVersion,
			Models: builtin.Models, Remotes: func() []*Remote { return []*Remote{r} }})
		doc, _, err := d.Get("/openapi/v2", mediaJSON)
		if err != nil {
			t.Fatal(err)
		}
		text, err := doc.Plain()
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, text).At("paths", r.Paths[0].Key, "$ref").Str(); got != "#/definitions/"+row.want {
			t.Errorf("%s: %s", row.kind, got)
		}
		if strings.Contains(string(text), quantity+"_v2") {
			t.Error("quantities have another name")
		}
	}
}
