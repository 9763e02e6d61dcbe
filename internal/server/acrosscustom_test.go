package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"plinth/object"
)

const (
	allThings       = "/apis/example.org/v1/things"
	thingsInDefault = "/apis/example.org/v1/namespaces/default/things"
)

// thingOf is a definition of things, whose spec has a default, and other fields as given.
func thingOf(kind, scope, withDefault, versions string) string {
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
metadata: {name: things.example.org}, spec: {group: example.org, scope: %s, names: {plural: things, kind: %s},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {
type: object, default: {}, properties: {a: {type: string}, size: {type: string, default: %q}}}}}}}%s]}}`, scope, kind,
		withDefault, versions)
}

func thing(kind, name, a string) string {
	return fmt.Sprintf(`{apiVersion: example.org/v1, kind: %s, metadata: {name: %s}, spec: {a: %q}}`, kind, name, a)
}

// Custom types are served in all planes, of those planes that serve the type, in the form in which each serves it, and
// changes of the definition are followed.
//
// SPEC: BEY-9
func TestAcrossCustom(t *testing.T) {
	s, front := acrossServer(t)
	if code, _ := s.do("*", http.MethodGet, allThings, ""); code != 404 {
		t.Errorf("a type that no plane has: %d", code)
	}
	for _, plane := range []string{"a", "b", "other", "none", "scope"} {
		s.create(plane, "")
	}
	define := func(plane, kind, scope, withDefault string) {
		t.Helper()
		s.want(201, plane, http.MethodPost, definitions, thingOf(kind, scope, withDefault, ""))
	}
	define("a", "Thing", "Namespaced", "small")
	define("b", "Thing", "Namespaced", "large")
	define("other", "Another", "Namespaced", "x")
	define("scope", "Thing", "Cluster", "x")
	s.want(201, "a", http.MethodPost, thingsInDefault, thing("Thing", "one", "1"))
	s.want(201, "b", http.MethodPost, thingsInDefault, thing("Thing", "one", "2"))
	s.want(201, "other", http.MethodPost, thingsInDefault, thing("Another", "one", "3"))
	s.want(201, "scope", http.MethodPost, allThings, thing("Thing", "one", "4"))
	shown := func(list object.Value) string {
		var all []string
		for _, item := range list.At("items").Items() {
			all = append(all, keyOf(item.At("metadata"))+"="+item.At("spec", "a").Str()+item.At("spec", "size").Str())
		}
		return list.At("kind").Str() + " " + strings.Join(all, " ")
	}
	list := s.want(200, "", http.MethodGet, "/clusters/*"+allThings, "")
	if have := shown(list); have != "ThingList a/default/one=1small b/default/one=2large" {
		t.Errorf("all planes have %s", have)
	}
	for _, item := range list.At("items").Items() {
		own := s.want(200, item.At("metadata", "annotations", ofPlane).Str(), http.MethodGet, thingsInDefault+"/one", "")
		if !object.Equal(own.At("metadata", "resourceVersion"), item.At("metadata", "resourceVersion")) {
			t.Errorf("an item is of %s, and that of its plane of %s", item.At("metadata", "resourceVersion").Str(),
				own.At("metadata", "resourceVersion").Str())
		}
	}
	next := watchPath(t, front, "/clusters/*"+allThings, list.At("metadata", "resourceVersion").Str())
	expect := func(typ, key string) {
		t.Helper()
		for {
			if e := next(); e.Type != "BOOKMARK" {
				if e.Type != typ || e.key() != key {
					t.Fatalf("%s of %s, want %s of %s", e.Type, e.key(), typ, key)
				}
				return
			}
		}
	}
	s.create("fork", "from: {name: b}")
	expect("ADDED", "fork/default/one")
	s.want(200, "fork", http.MethodPatch, thingsInDefault+"/one", `{"spec": {"a": "5"}}`)
	expect("MODIFIED", "fork/default/one")
	// A change of the definition that is not about the form of objects is no event.
	s.want(200, "a", http.MethodPatch, definitions+"/things.example.org", `{"metadata": {"annotations": {"x": "y"}}}`)
	s.want(201, "a", http.MethodPost, thingsInDefault, thing("Thing", "two", "6"))
	expect("ADDED", "a/default/two")
	// A field that the schema has no more is shown no more.
	without := strings.Replace(thingOf("Thing", "Namespaced", "small", ""), "a: {type: string}, ", "", 1)
	parsed := s.want(200, "b", http.MethodGet, definitions+"/things.example.org", "")
	b := strings.Replace(without, "name: things.example.org", "name: things.example.org, resourceVersion: "+
		fmt.Sprintf("%q", parsed.At("metadata", "resourceVersion").Str()), 1)
	s.want(200, "b", http.MethodPut, definitions+"/things.example.org", b)
	expect("MODIFIED", "b/default/one")
	// The definition goes, and its objects with it.
	s.want(200, "fork", http.MethodDelete, definitions+"/things.example.org", "")
	expect("DELETED", "fork/default/one")
	s.want(200, "", http.MethodDelete, planesPath+"/a", "")
	expect("DELETED", "a/default/one")
	expect("DELETED", "a/default/two")
	list = s.want(200, "", http.MethodGet, "/clusters/*"+allThings, "")
	if have := shown(list); !strings.HasPrefix(have, "ThingList b/default/one=") || strings.Contains(have, "=2") {
		t.Errorf("at the end all planes have %s", have)
	}
	// A plane that gets the definition is in it from then on.
	define("none", "Thing", "Namespaced", "late")
	s.want(201, "none", http.MethodPost, thingsInDefault, thing("Thing", "new", "7"))
	expect("ADDED", "none/default/new")
	if code, _ := s.do("*", http.MethodGet, "/apis/example.org/v2/things", ""); code != 404 {
		t.Errorf("a version that no plane serves: %d", code)
	}
}

// Definitions and policies of equal texts are compiled once for all planes.
//
// SPEC: BEY-10
func TestSharedDefinitions(t *testing.T) {
	s := startPlanes(t, nil)
	rules := strings.Replace(thingOf("Thing", "Namespaced", "x", ""), "type: object, default: {}",
		`type: object, "x-kubernetes-validations": [{rule: "self.size != 'none'"}]`, 1)
	for i, plane := range []string{"a", "b", "c"} {
		s.create(plane, "")
		s.want(201, plane, http.MethodPost, definitions, rules)
		s.want(201, plane, http.MethodPost, thingsInDefault, thing("Thing", "one", "1"))
		if n := s.shared.Definitions.Expressions.Compiled(); n != 1 {
			t.Errorf("%d expressions are compiled for %d planes", n, i+1)
		}
	}
}
