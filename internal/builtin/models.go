package builtin

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"plinth/internal/gotypes"
	"plinth/schema"
)

// Models returns a function that finds a type of OpenAPI documents by its name there: a kind, its list, or one of
// [gotypes.Models]; nil if the name is unknown. The function compiles the types for itself alone. A document is printed
// once, from all the types of a group; if these stayed compiled, they would take more memory than all that requests
// need.
func Models() func(name string) *schema.Type {
	compiler := gotypes.Apart()
	return func(name string) *schema.Type {
		all := models()
		i, found := slices.BinarySearchFunc(all, name, func(m model, name string) int {
			return strings.Compare(m.name, name)
		})
		if !found {
			return nil
		}
		return compiler.Type(all[i].golang)
	}
}

// model is a Go type that documents describe, with its OpenAPI name.
type model struct {
	name   string
	golang reflect.Type
}

// models are sorted by name, each once.
var models = sync.OnceValue(func() []model {
	var all []model
	add := func(t reflect.Type) {
		all = append(all, model{reflect.Zero(t).Interface().(interface{ OpenAPIModelName() string }).OpenAPIModelName(), t})
	}
	for _, t := range gotypes.Models() {
		add(t)
	}
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			for _, v := range g.kinds[i].versions {
				add(reflect.TypeOf(v.lifecycle).Elem())
				if v.list != nil {
					add(v.list)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b model) int { return strings.Compare(a.name, b.name) })
	return slices.Clip(slices.CompactFunc(all, func(a, b model) bool { return a.name == b.name }))
})

// modelName is the OpenAPI name of a kind's Go type. Its package is named after the first label of the group.
func modelName(group, version, kind string) string {
	if group == "" {
		group = "core"
	}
	switch group { // separate modules
	case "apiextensions.k8s.io":
		return "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions." + version + "." + kind
	case "apiregistration.k8s.io":
		return "io.k8s.kube-aggregator.pkg.apis.apiregistration." + version + "." + kind
	}
	if group == "internal.apiserver.k8s.io" {
		group = "apiserverinternal"
	}
	group, _, _ = strings.Cut(group, ".")
	return "io.k8s.api." + group + "." + version + "." + kind
}
