package discovery

import (
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/internal/features"
	"plinth/object"
)

// A type has the hash of the version in which it is stored, built-in ones only if the feature gate is on, and custom
// ones only if that version is served: so does the reference.
//
// SPEC: URI-8
func TestStorageVersionHashes(t *testing.T) {
	store := newDefinitionStore(t, builtin.Resources(builtin.Config{}))
	for group, served := range map[string]string{"known.example.com": "true", "hidden.example.com": "false"} {
		p, err := object.ParseJSON([]byte(strings.NewReplacer("GROUP", group, "SERVED", served).Replace(`{
			"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.GROUP"},
			"spec":{"group":"GROUP","scope":"Cluster",
				"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
				"versions":[
					{"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}},
					{"name":"v2","served":SERVED,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)))
		if err != nil {
			t.Fatal(err)
		}
		store.put(p.Value)
	}
	known := storageVersion{"known.example.com", "v2", "Thing"}.hash()
	for _, c := range []struct {
		path, name  string
		on, without string
	}{
		{"/api/v1", "configmaps", storageVersion{"", "v1", "ConfigMap"}.hash(), ""},
		{"/apis/known.example.com/v1", "things", known, known},
		{"/apis/hidden.example.com/v1", "things", "", ""},
	} {
		for _, off := range []bool{false, true} {
			d := New(Config{Registry: store.registry, Version: testVersion,
				Features: features.Set{}.With(features.StorageVersionHash, !off)})
			want := c.on
			if off {
				want = c.without
			}
			found := false
			for _, r := range getter(t, d)(c.path, mediaJSON).At("resources").Items() {
				if r.At("name").Str() == c.name {
					found = true
					if got := r.At("storageVersionHash").Str(); got != want {
						t.Errorf("%s has the hash %q, and is to have %q (off: %t)", c.path, got, want, off)
					}
				}
			}
			if !found {
				t.Errorf("%s has no %s", c.path, c.name)
			}
		}
	}
}
