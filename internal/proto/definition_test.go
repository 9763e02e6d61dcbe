package proto_test

import (
	"bytes"
	"encoding/json"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"plinth/internal/proto"
	"plinth/object"
	"plinth/schema"
)

// definition has each of the types that are written in one of two forms, in both forms.
const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.b.c"},
"spec":{"group":"b.c","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","maxProperties":3,"minimum":1.5,"default":{"a":[1,2.50,null]},"enum":[1,"x",null,{"y":true}],
"properties":{
 "list":{"type":"array","items":{"type":"string","maxLength":300,"x-kubernetes-validations":[{"rule":"self != ''","optionalOldSelf":false}]}},
 "tuple":{"type":"array","items":[{"type":"string"},{"type":"integer","nullable":true}],"additionalItems":false},
 "open":{"type":"object","additionalProperties":true},
 "closed":{"type":"object","additionalProperties":false},
 "map":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"boolean"}}},
 "depends":{"dependencies":{"a":["b","c"],"d":{"required":["e"]}},"not":{"anyOf":[{},{"pattern":"^x"}]},"x-kubernetes-preserve-unknown-fields":true}
}}}}]}}`

// service is an APIService with each field of its type.
const service = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.b.c"},
"spec":{"service":{"namespace":"n","name":"s","port":443},"group":"b.c","version":"v1","insecureSkipTLSVerify":true,
"caBundle":"AAEC","groupPriorityMinimum":1000,"versionPriority":15},"status":{"conditions":[{"type":"Available","status":"True",
"lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Passed","message":"all checks passed"}]}}`

// kindOf is an object of a Go type with generated code and a kind.
type kindOf interface {
	generated
	runtime.Object
}

// The messages of the kinds whose modules have no vectors are those of the generated code, and are read as their JSON
// is. SPEC: MED-3, EXT-1, EXT-2
func TestDefinitions(t *testing.T) {
	for name, c := range map[string]struct {
		text         string
		golang, back kindOf
	}{
		definitions: {definition, &apiextensions.CustomResourceDefinition{},
			&apiextensions.CustomResourceDefinition{}},
		"apiregistration.k8s.io.v1.APIService": {service, &apiregistration.APIService{}, &apiregistration.APIService{}},
	} {
		t.Run(name, func(t *testing.T) { compareGenerated(t, kinds()[name].Schema(), c.text, c.golang, c.back) })
	}
}

func compareGenerated(t *testing.T, typ *schema.Type, of string, golang, again kindOf) {
	t.Helper()
	if err := json.Unmarshal([]byte(of), golang); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(golang)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON([]byte(of))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := typ.Decode(parsed.Value)
	if err != nil {
		t.Fatal(err)
	}
	data := object.AppendObject(nil, decoded.Value)
	if want, _ := object.ParseJSON(text); string(object.AppendObject(nil, want.Value)) != string(data) {
		t.Errorf("decoded %s\nwant    %s", data, text)
	}
	message, err := proto.AppendMessage(nil, typ, data, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	kind := golang.GetObjectKind().GroupVersionKind()
	golang.GetObjectKind().SetGroupVersionKind(runtimeschema.GroupVersionKind{})
	want, err := golang.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(message, want) {
		err := again.Unmarshal(message)
		read, _ := json.Marshal(again)
		t.Errorf("message of %d bytes, want %d; read as (%v) %s", len(message), len(want), err, read)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind},
		Raw: want}
	body, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	value, err := proto.Parse(typ, append([]byte("k8s\x00"), body...))
	if err != nil {
		t.Fatal(err)
	}
	back, err := typ.Decode(value)
	if err != nil {
		t.Fatal(err)
	}
	if got := object.AppendObject(nil, back.Value); !bytes.Equal(got, data) {
		t.Errorf("read %s\nwant %s", got, data)
	}
}

// A value of one of two forms is refused if it has neither form, with the error of its decoder. SPEC: VAL-1
func TestDefinitionsOfNeitherForm(t *testing.T) {
	typ := kinds()["apiextensions.k8s.io.v1.CustomResourceDefinition"].Schema()
	for _, c := range []struct{ schema, want string }{
		{`{"additionalProperties":"x"}`, "boolean or JSON schema expected"},
		{`{"items":{"type":5}}`,
			"json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.type of type string"},
		{`{"items":[{"maxLength":"5"}]}`,
			"json: cannot unmarshal string into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.maxLength of type int64"},
		{`{"items":{"colour":5},"additionalItems":true}`, ""},
	} {
		text := `{"spec":{"versions":[{"schema":{"openAPIV3Schema":` + c.schema + `}}]}}`
		parsed, err := object.ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		have := ""
		if _, err := typ.Decode(parsed.Value); err != nil {
			have = err.Error()
		}
		if have != c.want {
			t.Errorf("%s: %q, want %q", c.schema, have, c.want)
		}
		var golang apiextensions.CustomResourceDefinition
		goErr := ""
		if err := json.Unmarshal([]byte(text), &golang); err != nil {
			goErr = err.Error()
		}
		if goErr != c.want {
			t.Errorf("%s: Go says %q", c.schema, goErr)
		}
	}
}
