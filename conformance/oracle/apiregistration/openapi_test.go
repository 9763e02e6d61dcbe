package apiregistration

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"plinth/conformance/internal/linediff"
	"plinth/internal/aggregation"
	"plinth/internal/builtin"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/object"
)

// odd has what the documents of this server have not.
const odd = `{"swagger":"2.0","info":{"title":"t","version":"1"},
"securityDefinitions":{"k":{"type":"apiKey","name":"authorization","in":"header","description":"d"},
"o":{"type":"oauth2","flow":"implicit","authorizationUrl":"https://a","tokenUrl":"https://b","scopes":{"s":"t"}}},
"parameters":{"p":{"name":"p","in":"query","type":"string"}},
"paths":{"/a/{n}":{"x-of-path":1,"parameters":[{"$ref":"#/parameters/p"},{"name":"n","in":"path","required":true,
"type":"string","format":"f","uniqueItems":true}],
"get":{"description":"d","tags":["t"],"summary":"s","deprecated":true,"operationId":"o","schemes":["https"],
"produces":["application/json","application/yaml"],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/A"}},
"default":{"description":"else"},"404":{"$ref":"#/responses/r"}},"x-kubernetes-action":"get"},
"post":{"consumes":["*/*"],"parameters":[{"name":"body","in":"body","schema":{"$ref":"#/definitions/B"}},
{"name":"other","in":"body","schema":{"type":"string"}},{"name":"body","in":"query","type":"boolean","allowEmptyValue":true}],
"responses":{"201":{"description":"","schema":{"type":"array","items":{"$ref":"#/definitions/A"}}}}},
"put":{"parameters":[{"name":"body","in":"body","schema":{"type":"object"}}],"responses":{"200":{"description":"x",
"schema":{"type":"string"}}}}}},
"definitions":{"A":{"type":"object","description":"a","required":["b"],"properties":{"b":{"description":"beside",
"$ref":"#/definitions/B"},"c":{"type":"object","additionalProperties":{"$ref":"#/definitions/B"}},
"d":{"type":"object","additionalProperties":true},"e":{"type":"array","items":{"type":"object","properties":{"f":
{"$ref":"#/definitions/A","default":{}}}}},"g":{"type":"string","enum":["x","y"],"format":"z","x-g":true}},
"x-kubernetes-group-version-kind":[{"group":"","kind":"A","version":"v1"}]},"B":{"type":"string"}}}`

// The OpenAPI v3 document that is made for a backend without one is the one that the reference makes.
func TestOpenAPI3(t *testing.T) {
	documents := discovery.New(discovery.Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})),
		Models: builtin.Models})
	own, _, err := documents.Get("/openapi/v2", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := own.Plain()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, v2 := range []string{odd, string(text), `{"swagger":"2.0","info":{"title":"t","version":"1"},"paths":{}}`} {
		var swagger spec.Swagger
		if err := json.Unmarshal([]byte(v2), &swagger); err != nil {
			t.Fatal(err)
		}
		there, err := json.Marshal(openapiconv.ConvertV2ToV3(&swagger))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON([]byte(v2))
		if err != nil {
			t.Fatal(err)
		}
		here := object.AppendJSON(nil, aggregation.OpenAPI3(parsed.Value))
		a, b := parts(t, here), parts(t, there)
		for _, name := range slices.Sorted(maps.Keys(union(a, b))) {
			if compared++; a[name] != b[name] {
				t.Errorf("%s: ours, and the reference's:\n%s", name, linediff.Diff(a[name], b[name]))
			}
		}
	}
	if compared < 1000 {
		t.Errorf("%d parts were compared", compared)
	}
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// parts are the paths and components of a document, each in its own text, and what else it has.
func parts(t *testing.T, text []byte) map[string]string {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	add := func(prefix string, of any) {
		list, _ := of.(map[string]any)
		for name, v := range list {
			text, err := json.MarshalIndent(v, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			all[prefix+name] = string(text)
		}
	}
	add("path ", document["paths"])
	components, _ := document["components"].(map[string]any)
	for name := range components {
		add(name+" ", components[name])
	}
	delete(document, "paths")
	delete(document, "components")
	add("", document)
	return all
}
