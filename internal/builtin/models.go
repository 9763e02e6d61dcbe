package builtin

import (
	"strings"
	"sync"

	"plinth/internal/builtin/gotypes"
	"plinth/schema"
)

// Model returns the compiled form of a type that is not the type of a resource but occurs in OpenAPI documents and
// requests, by its OpenAPI name: the list of a kind, or one of [gotypes.Model]; nil if the name is unknown.
func Model(name string) *schema.Type {
	if list := lists()[name]; list != nil {
		return list()
	}
	return gotypes.Model(name)
}

// lists are the lists of all kinds, by their OpenAPI names.
var lists = sync.OnceValue(func() map[string]func() *schema.Type {
	byName := map[string]func() *schema.Type{}
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			for _, v := range g.kinds[i].versions {
				if v.list != nil {
					byName[modelName(g.name, v.name, g.kinds[i].kind+"List")] = v.list
				}
			}
		}
	}
	return byName
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
