package discovery

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// kindsOf returns the kinds in a model's extension.
func kindsOf(model *spec.Schema) []schema.GroupVersionKind {
	list, _ := model.Extensions["x-kubernetes-group-version-kind"].([]any)
	var kinds []schema.GroupVersionKind
	for _, item := range list {
		m, _ := item.(map[string]any)
		group, _ := m["group"].(string)
		version, _ := m["version"].(string)
		kind, _ := m["kind"].(string)
		kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	}
	return kinds
}

// each calls f with a schema and all schemas inside it.
func each(s *spec.Schema, f func(*spec.Schema)) {
	f(s)
	for _, p := range s.Properties {
		each(&p, f)
	}
	for i := range s.AllOf {
		each(&s.AllOf[i], f)
	}
	if s.Items != nil && s.Items.Schema != nil {
		each(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		each(s.AdditionalProperties.Schema, f)
	}
}

// plainTexts rewrites the texts of all Any messages below m in a canonical form of YAML.
func plainTexts(t *testing.T, m protoreflect.Message) {
	if m.Descriptor().Name() == "Any" {
		field := m.Descriptor().Fields().ByName("yaml")
		var v any
		if err := yaml.Unmarshal([]byte(m.Get(field).String()), &v); err != nil {
			t.Error(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		m.Set(field, protoreflect.ValueOfString(string(text)))
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				plainTexts(t, v.List().Get(i).Message())
			}
		default:
			plainTexts(t, v.Message())
		}
		return true
	})
}
