package discovery

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
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
