package validation_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/crd/validation"
	"plinth/internal/gotypes"
	"plinth/object"
)

var options = validation.Options{Metadata: gotypes.Of[metav1.ObjectMeta]()}

// definition returns a definition with this schema in each of the given versions.
func definition(t testing.TB, schema string, versions ...string) object.Value {
	t.Helper()
	var list []string
	for i, name := range versions {
		storage := "false"
		if i == 0 {
			storage = "true"
		}
		list = append(list, `{"name":"`+name+`","served":true,"storage":`+storage+`,"schema":{"openAPIV3Schema":`+schema+`}}`)
	}
	parsed, err := object.ParseJSON([]byte(`{"metadata":{"name":"tins.example.com"},"status":{"storedVersions":["` + versions[0] + `"]},
		"spec":{"group":"example.com","scope":"Cluster","conversion":{"strategy":"None"},
		"names":{"plural":"tins","singular":"tin","kind":"Tin","listKind":"TinList"},"versions":[` + strings.Join(list, ",") + `]}}`))
	if err != nil {
		t.Skip(err)
	}
	return parsed.Value
}

// conformance/oracle/crd compares all rules with upstream's; these cases fail when a change breaks the rules as a
// whole.
//
// SPEC: EXT-1, VAL-1
func TestValidate(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{}}}`,
			"spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"},
		{`{"type":"object","properties":{"a":{"type":"array"}}}`,
			"spec.validation.openAPIV3Schema.properties[a].items: Required value: must be specified"},
		{`{"type":"object","properties":{"a":{"type":"integer","default":"x"}}}`,
			`spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "string":  in body must be of type integer: "string"`},
		{`{"type":"object","properties":{"a":{"type":"object","default":{"b":1}}}}`,
			`spec.validation.openAPIV3Schema.properties[a].default: Invalid value: {"b":1}: must not have unknown fields`},
		{`{"type":"object","x-kubernetes-validations":[{"rule":"true","fieldPath":".a"}]}`,
			`spec.validation.openAPIV3Schema.x-kubernetes-validations[0].fieldPath: Invalid value: ".a": must be a valid path`},
	} {
		errs := validation.Validate(definition(t, c.schema, "v1", "v2"), options)
		got := ""
		if len(errs) > 0 {
			got = errs[0].Error()
		}
		if got != c.want || len(errs) > 1 {
			t.Errorf("%s:\n got %v\nwant %s", c.schema, errs, c.want)
		}
	}
}

// The text of a schema's errors is bounded, even if each of its nodes has an error and a path as long as it is deep.
func TestDeepSchemas(t *testing.T) {
	const depth = 3000
	for _, level := range [][2]string{
		{`{"properties":{"a":`, `}}`},
		{`{"not":`, `}`},
		{`{"type":"string","not":`, `}`},
		{`{"type":"object","uniqueItems":true,"x-kubernetes-validations":[{"rule":"true"}],"properties":{"a":`, `}}`},
		{`{"type":"object","default":{"b":1},"properties":{"a":`, `}}`},
		{`{"anyOf":[{"properties":{"a":{"description":"x"}}}],"items":`, `}`},
	} {
		crd := definition(t, `{"type":"object","properties":{"top":`+strings.Repeat(level[0],
			depth)+`{}`+strings.Repeat(level[1], depth)+`}}`, "v1")
		began := time.Now()
		size := 0
		for _, errs := range [][]string{texts(validation.Validate(crd, options)),
			texts(validation.ValidateUpdate(crd, crd, options))} {
			for _, text := range errs {
				size += len(text)
			}
		}
		if size > 16<<20 || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %d bytes of errors in %s", level[0], size, time.Since(began))
		}
	}
}

func texts[E error](errs []E) (all []string) {
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// Validation of any schema ends, and without a panic.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object"}`, `[]`, `null`,
		`{"items":[{}],"not":3,"properties":{"a":1},"x-kubernetes-validations":[{"fieldPath":".['\\"}]}`,
		`{"type":"object","default":{"metadata":{"name":1}},"properties":{"metadata":{"type":"object","default":[],"properties":{"labels":{"default":{}}}}}}`,
		`{"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","default":1}}}}`,
		`{"type":"object","properties":{"a":{"type":"arliray","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","default":1}}}}`,
		`{"type":"object","properties":{"a":{"type":"object","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"default":{}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if len(schema) > 1<<12 {
			t.Skip()
		}
		crd := definition(t, schema, "v1", "v2")
		validation.Validate(crd, options)
		validation.ValidateUpdate(crd, crd, options)
	})
}
