package builtin

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"plinth/internal/builtin/defaults"
	"plinth/internal/engine"
)

// apiextensions is the group of custom resource definitions. This row serves them like any other kind; package crd has
// what a definition does.
func apiextensions() group {
	return group{"apiextensions.k8s.io", []kind{{
		name: "customresourcedefinitions", kind: "CustomResourceDefinition", short: "crd crds",
		defaults:   defaults.CustomResourceDefinition,
		untouched:  statusApart,
		categories: []string{"api-extensions"},
		versions: []version{
			of[apiextensionsv1.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionList](),
		},
		cluster: true, conditional: true,
		referenceStorage: "v1beta1", status: statusAndMeta, generation: spec,
		acts: func(r *engine.Resource, parts *Parts) {
			if parts.Definitions != nil {
				parts.Definitions(r)
			}
		},
	}}}
}
