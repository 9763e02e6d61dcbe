package discovery

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
	"plinth/schema"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// customGroups is the suffix of the definitions' groups.
const customGroups = ".discovery.example.com"

// customDefinitions are the definitions that the documents of custom types are compared with.
func customDefinitions(t testing.TB) []object.Value {
	t.Helper()
	data, err := os.ReadFile("testdata/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []object.Value
	for _, text := range strings.Split(string(data), "\n---\n") {
		p, err := object.ParseYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Value)
	}
	return all
}

// definitionStore is a store of definitions, and the registry of what they define beside the built-in types.
type definitionStore struct {
	testing.TB
	store    *store.Store
	registry *engine.Registry
}

func newDefinitionStore(tb testing.TB, types []*engine.Resource) *definitionStore {
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(engine.NewRegistry(nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	definitions := crd.New(func() *schema.Type { return gotypes.Of[meta.ObjectMeta]() })
	registry := engine.NewRegistry(types)
	definitions.Open(s.Collection(crd.Path))
	registry.Define(s.Collection(crd.Path), definitions.Define)
	return &definitionStore{tb, s, registry}
}

// put stores a definition in the state in which all its names are accepted.
func (d *definitionStore) put(definition object.Value) {
	d.Helper()
	decoded, err := gotypes.Of[apiextensions.CustomResourceDefinition]().Decode(definition)
	if err != nil || len(decoded.Unknown) > 0 {
		d.Fatal(err, decoded.Unknown)
	}
	obj := decoded.Value.WithAt(object.StringOf("1"), "metadata", "uid").With("status", object.Fields(
		"acceptedNames", decoded.Value.At("spec", "names"),
		"conditions", object.ListOf(object.Fields("type", object.StringOf("Established"), "status", object.StringOf("True"))),
	))
	key := store.Key{Resource: crd.Path, Name: obj.At("metadata", "name").Str()}
	if _,
		err := d.store.Commit(d.Context(), nil, []store.Change{{Key: key, Data: object.AppendObject(nil, obj)}}); err != nil {
		d.Fatal(err)
	}
}

// ofCustom reduces a document of all types to the groups of the definitions.
func ofCustom(v object.Value) object.Value {
	for _, list := range []string{"groups", "items"} {
		if !v.At(list).IsNull() {
			v = filter(v, list, func(g object.Value) bool {
				return strings.HasSuffix(g.At("name").Str()+g.At("metadata", "name").Str(), customGroups)
			})
		}
	}
	for key, own := range map[string]string{"paths": customGroups + "/", "definitions": "com.example.discovery."} {
		if m := v.At(key); !m.IsNull() {
			v = v.With(key, object.MapOf(slices.DeleteFunc(slices.Clone(m.Members()), func(m object.Member) bool {
				return !strings.Contains(m.Key, own)
			})...))
		}
	}
	if m := v.At("parameters"); !m.IsNull() {
		paths := object.AppendJSON(nil, v.At("paths"))
		v = v.With("parameters", object.MapOf(slices.DeleteFunc(slices.Clone(m.Members()), func(m object.Member) bool {
			return !bytes.Contains(paths, []byte(`"#/parameters/`+m.Key+`"`))
		})...))
	}
	return v
}

// SPEC: URI-8, EXT-1: the documents about custom types are those of the reference for the same definitions.
func TestDocumentsOfCustomTypesAreTheReferences(t *testing.T) {
	definitions := newDefinitionStore(t, builtin.Resources(builtin.Config{}))
	for _, definition := range customDefinitions(t) {
		definitions.put(definition)
	}
	d := New(Config{Registry: definitions.registry, Version: testVersion, Models: builtin.Models})
	c := d.catalog()
	if *reference != "" {
		defer define(t, customDefinitions(t))()
	}
	served := func(group, version string) bool {
		return c.find(group, version) != nil && group != "apiextensions.k8s.io"
	}
	got, want := map[string]string{}, map[string]string{}
	theSame := func(v object.Value) object.Value {
		v = ofCustom(normal("", v, served))
		if v.At("kind").Str() == "APIResourceList" { // the reference's order is that of a Go map
			resources := slices.Clone(v.At("resources").Items())
			of := func(v object.Value) string { // a subresource stays behind its resource
				resource, _, _ := strings.Cut(v.At("name").Str(), "/")
				return resource
			}
			slices.SortStableFunc(resources, func(a, b object.Value) int { return strings.Compare(of(a), of(b)) })
			v = v.With("resources", object.ListOf(resources...))
		}
		return v
	}
	compare := func(path, accept string) {
		ours := theSame(parse(t, plain(t, d, path, accept)))
		record := func(facts map[string]string, v object.Value) {
			if strings.HasPrefix(path, "/openapi/") {
				maps.Copy(facts, customFacts(path, v))
			} else {
				facts[path+" "+accept] = string(object.AppendJSON(nil, v))
			}
		}
		record(got, ours)
		if *reference != "" {
			theirs := theSame(parse(t, ask(t, path, accept)))
			record(want, theirs)
			diff(t, path, theirs, ours)
		}
	}
	compare("/apis", mediaJSON)
	compare("/apis", aggregatedJSON)
	compared := 0
	for _, g := range c.groups {
		if !strings.HasSuffix(g.name, customGroups) {
			continue
		}
		compare("/apis/"+g.name, mediaJSON)
		for _, gv := range g.versions {
			compare(gv.path(), mediaJSON)
			compare("/openapi/v3"+gv.path(), mediaJSON)
			compared++
		}
	}
	if compared != 6 {
		t.Errorf("%d group versions are compared", compared)
	}
	compare("/openapi/v2", mediaJSON)

	const file = "testdata/custom.txt"
	if *rewrite {
		writeFacts(t, file, want)
	}
	if *reference == "" {
		want = readFacts(t, file)
	}
	for _, part := range slices.Sorted(maps.Keys(want)) {
		if got[part] != want[part] {
			t.Errorf("%s: %s\nthe reference has %s", part, got[part], want[part])
		}
	}
	for _, part := range slices.Sorted(maps.Keys(got)) {
		if want[part] == "" {
			t.Errorf("%s: too much", part)
		}
	}
}

// All references in a document resolve within it, whichever types are served beside custom types.
//
// SPEC: URI-8, EXT-1
func TestDocumentsOfCustomTypesAreWhole(t *testing.T) {
	for _, types := range [][]*engine.Resource{nil, builtin.Resources(builtin.Config{})} {
		definitions := newDefinitionStore(t, types)
		for _, definition := range customDefinitions(t) {
			definitions.put(definition)
		}
		d := New(Config{Registry: definitions.registry, Version: testVersion, Models: builtin.Models})
		found := 0
		for _, path := range []string{
			"/openapi/v2", "/openapi/v3/apis/alpha.discovery.example.com/v1",
			"/openapi/v3/apis/zeta.discovery.example.com/v1alpha1",
		} {
			doc := parse(t, plain(t, d, path, mediaJSON))
			references(doc, func(to string) {
				found++
				at := doc
				for _, key := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
					at = at.At(key)
				}
				if at.IsNull() {
					t.Errorf("%s refers to %s, which is not there", path, to)
				}
			})
		}
		if found < 400 {
			t.Errorf("only %d references", found)
		}
	}
}

// A custom type whose model would have the name of a built-in one is described beside that one, under another name; one
// with the name of a model that all custom types refer to is not described. No name is there twice.
//
// SPEC: URI-8, EXT-1
func TestCustomModelsBesideBuiltIn(t *testing.T) {
	definitions := newDefinitionStore(t, builtin.Resources(builtin.Config{}))
	text := object.StringOf
	define := func(group, plural, kind string) {
		schema := object.Fields("type", text("object"), "properties", object.Fields(
			"spec", object.Fields("type", text("object"), "description", text("mine"))))
		definitions.put(object.Fields("apiVersion", text("apiextensions.k8s.io/v1"), "kind", text("CustomResourceDefinition"),
			"metadata", object.Fields("name", text(plural+"."+group)), "spec", object.Fields("group", text(group),
				"scope", text("Namespaced"), "names", object.Fields("plural", text(plural), "singular", text(strings.ToLower(kind)),
					"kind", text(kind), "listKind", text(kind+"List")),
				"versions", object.ListOf(object.Fields("name", text("v1"), "served", object.BoolOf(true),
					"storage", object.BoolOf(true), "schema", object.Fields("openAPIV3Schema", schema))))))
	}
	define("apiextensions.apis.pkg.apiextensions-apiserver.k8s.io", "customresourcedefinitions",
		"CustomResourceDefinition")
	define("apps.api.k8s.io", "deploymentspecs", "DeploymentSpec")
	define("meta.apis.pkg.apimachinery.k8s.io", "objectmetas", "ObjectMeta")
	define("more.api.k8s.io", "others", "Other")
	d := New(Config{Registry: definitions.registry, Version: testVersion, Models: builtin.Models})
	body := plain(t, d, "/openapi/v2", mediaJSON)
	doc := parse(t, body)
	in := bytes.Index(body, []byte(`"definitions":{`))
	for _, m := range doc.At("definitions").Members() {
		if n := bytes.Count(body[in:], []byte(`"`+m.Key+`":{`)); n != 1 {
			t.Errorf("%s is there %d times", m.Key, n)
		}
	}
	const definition = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
	for name, mine := range map[string]bool{
		definition: false, definition + "_v2": true, "io.k8s.api.apps.v1.DeploymentSpec_v2": true,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": false, "io.k8s.api.more.v1.Other": true,
	} {
		model := doc.At("definitions", name)
		if got := model.At("properties", "spec", "description").Str() == "mine"; model.IsNull() || got != mine {
			t.Errorf("%s is of the custom type: %v", name, got)
		}
	}
	for path, want := range map[string]string{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": definition,
		"/apis/apiextensions.apis.pkg.apiextensions-apiserver.k8s.io/v1/namespaces/{namespace}/customresourcedefinitions": definition +
			"_v2",
		"/apis/more.api.k8s.io/v1/namespaces/{namespace}/others": "io.k8s.api.more.v1.Other",
	} {
		if got := doc.At("paths", path, "post", "responses", "201", "schema", "$ref").Str(); got != "#/definitions/"+want {
			t.Errorf("%s answers with %s", path, got)
		}
	}
	if got := doc.At("definitions", definition+"List_v2", "properties", "items", "items", "$ref").Str(); got !=
		"#/definitions/"+definition+"_v2" {
		t.Errorf("the list has %s", got)
	}
}

// references calls f with every reference in a document.
func references(v object.Value, f func(to string)) {
	for _, m := range v.Members() {
		if m.Key == "$ref" && m.Value.Kind() == object.String {
			f(m.Value.Str())
		}
		references(m.Value, f)
	}
	for _, item := range v.Items() {
		references(item, f)
	}
}

// customFacts are the models of custom types in a document, and the hashes of its other parts.
func customFacts(path string, v object.Value) map[string]string {
	all := map[string]string{}
	models := []string{"components", "schemas"}
	if path == "/openapi/v2" {
		models = []string{"definitions"}
		v = object.Fields("paths", v.At("paths"), "definitions", v.At("definitions"), "parameters", v.At("parameters"))
	}
	for _, m := range v.At(models...).Members() {
		if strings.HasPrefix(m.Key, "com.example.") {
			all[path+" "+m.Key] = string(object.AppendJSON(nil, m.Value))
		}
	}
	maps.Copy(all, facts(path, v))
	return all
}

// define creates definitions in the reference and waits until its documents have all of them. The returned function
// deletes them.
func define(t *testing.T, definitions []object.Value) (undefine func()) {
	t.Helper()
	const collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, definition := range definitions {
		tell(t, http.MethodPost, collection, object.AppendJSON(nil, definition))
	}
	deadline := time.Now().Add(time.Minute)
	for _, definition := range definitions {
		spec := definition.At("spec")
		for _, v := range spec.At("versions").Items() {
			if !v.At("served").Bool() {
				continue
			}
			groupVersion := spec.At("group").Str() + "/" + v.At("name").Str()
			kind := `.` + v.At("name").Str() + "." + spec.At("names", "kind").Str() + `"`
			for path, has := range map[string]string{
				"/openapi/v3": "apis/" + groupVersion + "?", "/openapi/v3/apis/" + groupVersion: kind, "/openapi/v2": kind,
				"/apis": groupVersion, "/apis/" + groupVersion: spec.At("names", "kind").Str(),
			} {
				for !bytes.Contains(tell(t, http.MethodGet, path, nil), []byte(has)) {
					if time.Now().After(deadline) {
						t.Fatalf("%s does not tell of %s", path, has)
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
		}
	}
	time.Sleep(2 * time.Second) // aggregated discovery is updated last, with no sign by which to notice it
	return func() {
		for _, definition := range definitions {
			tell(t, http.MethodDelete, collection+"/"+definition.At("metadata", "name").Str(), nil)
		}
	}
}

// tell sends a request to the reference. A 404 is returned like any other response.
func tell(t *testing.T, method, path string, body []byte) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	rq, err := http.NewRequest(method, *reference+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	rq.Header.Set("Authorization", "Bearer "+*token)
	rq.Header.Set("Content-Type", mediaJSON)
	rq.Header.Set("Accept", mediaJSON)
	resp, err := client.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 400 && resp.StatusCode != http.StatusNotFound {
		t.Fatal(fmt.Errorf("%s %s: %s %s %v", method, path, resp.Status, answer, err))
	}
	return answer
}
