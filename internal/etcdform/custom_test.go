package etcdform_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/builtin"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/gotypes"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
	"plinth/schema"
)

const crontabs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
	`"metadata":{"name":"crontabs.b.c","uid":"1"},"spec":{"group":"b.c","names":{"kind":"CronTab","plural":"crontabs"},` +
	`"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",` +
	`"properties":{"spec":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","default":"x"}}}}}}},` +
	`{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]},` +
	`"status":{"acceptedNames":{"kind":"CronTab","plural":"crontabs"},` +
	`"conditions":[{"status":"True","type":"Established"}],"storedVersions":["v1"]}}`

// An object of a known definition has its stamp if a write would store the same; else the engine prunes it, sets its
// defaults and converts it when it is read. SPEC: STORE-3, EXT-1
func TestObjectsOfDefinitions(t *testing.T) {
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(engine.NewRegistry(nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	definitions := crd.New(func() *schema.Type { return gotypes.Of[metav1.ObjectMeta]() })
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	definitions.Open(s.Collection(crd.Path))
	registry.Define(s.Collection(crd.Path), definitions.Define)
	_, err = s.Commit(context.Background(), nil, []store.Change{{
		Key: store.Key{Resource: crd.Path, Name: "crontabs.b.c"}, Data: []byte(crontabs)}})
	if err != nil {
		t.Fatal(err)
	}
	f, k := etcdform.New(registry, ""), store.Key{Resource: "b.c/crontabs", Name: "a/b"}
	stamp := registry.Now().Kind("b.c/crontabs").StampOf()
	const metadata = `"kind":"CronTab","metadata":{"name":"b","namespace":"a","uid":"u"}`
	for _, c := range []struct {
		value string
		form  uint64
	}{
		{`{"apiVersion":"b.c/v1",` + metadata + `,"spec":{"a":1,"b":"y"}}`, stamp},
		{`{"apiVersion":"b.c/v1",` + metadata + `}`, stamp},
		{`{"apiVersion":"b.c/v1",` + metadata + `,"spec":{"a":1}}`, 0},                  // without a default
		{`{"apiVersion":"b.c/v1",` + metadata + `,"spec":{"b":"y","c":1}}`, 0},          // with an unknown field
		{`{"apiVersion":"b.c/v1",` + metadata + `,"spec":{"a":null,"b":"y"}}`, 0},       // with a null
		{`{"apiVersion":"b.c/v2",` + metadata + `}`, 0},                                 // of another version
		{`{"apiVersion":"b.c/v3",` + metadata + `}`, 0},                                 // of an unknown one
		{`{"apiVersion":"b.c/v1",` + metadata + `,"spec":{"a":"text","b":"y"}}`, stamp}, // invalid, as a write would find
	} {
		data, sidecar, exact, err := f.Decode(k, []byte(c.value+"\n"))
		if err != nil || sidecar.Form != c.form || !exact || string(data) != c.value {
			t.Errorf("%s is read as %s, sidecar %+v, exact %v, %v; want the stamp %d", c.value, data, sidecar, exact, err, c.form)
		}
	}
	// The definition itself is found at its own path, and stored as v1beta1.
	definition := store.Key{Resource: crd.Path, Name: "crontabs.b.c"}
	value, err := f.Encode(definition, []byte(crontabs))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(value)
	if err != nil {
		t.Fatal(err)
	}
	spec := parsed.Value.At("spec")
	if v, ok := spec.Get("preserveUnknownFields"); !ok || v.Bool() || spec.At("version").Str() != "v1" ||
		parsed.Value.At("apiVersion").Str() != "apiextensions.k8s.io/v1beta1" {
		t.Errorf("the definition is written as %s", value)
	}
}
