package discovery

import (
	"maps"
	"slices"
	"strings"

	"plinth/object"
)

// What other servers serve is read here. They may send anything: what is returned has those members alone that it
// may have, each of its type.

// GroupsOf returns the groups of an aggregated discovery document. Of several of one name the first counts.
func GroupsOf(document object.Value) (groups []object.Value) {
	seen := map[string]bool{}
	for _, group := range document.At("items").Items() {
		name := groupName(group)
		if seen[name] {
			continue
		}
		seen[name] = true
		var versions []object.Value
		for _, version := range group.At("versions").Items() {
			versions = append(versions, VersionOf(version).With("freshness", text(version, "freshness")))
		}
		groups = append(groups, groupItem(name, versions))
	}
	return groups
}

// VersionOf returns an APIVersionDiscovery, without its freshness. Each resource and subresource gets a
// responseKind: there are clients that need it.
func VersionOf(entry object.Value) object.Value {
	var resources []object.Value
	for _, resource := range entry.At("resources").Items() {
		known := copied(object.Fields("resource", text(resource, "resource"), "responseKind",
			kindOf(resource.At("responseKind")), "scope", text(resource, "scope"), "singularResource",
			text(resource, "singularResource")), resource, "verbs", "shortNames", "categories")
		var parts []object.Value
		for _, part := range resource.At("subresources").Items() {
			of := copied(object.Fields("subresource", text(part, "subresource"), "responseKind",
				kindOf(part.At("responseKind"))), part, "verbs")
			var types []object.Value
			for _, accepted := range part.At("acceptedTypes").Items() {
				types = append(types, kindOf(accepted))
			}
			if len(types) > 0 {
				of = of.With("acceptedTypes", object.ListOf(types...))
			}
			parts = append(parts, of)
		}
		if len(parts) > 0 {
			known = known.With("subresources", object.ListOf(parts...))
		}
		resources = append(resources, known)
	}
	known := object.Fields("version", text(entry, "version"))
	if len(resources) > 0 {
		known = known.With("resources", object.ListOf(resources...))
	}
	return known
}

// ListedResources converts the resources of an APIResourceList to those of aggregated discovery.
func ListedResources(resources object.Value) object.Value {
	var all []object.Value
	at := map[string]int{}
	parts := map[string][]object.Value{}
	for _, r := range resources.Items() {
		name, part, isPart := strings.Cut(r.At("name").Str(), "/")
		if isPart {
			entry := copied(object.Fields("subresource", object.StringOf(part), "responseKind", kindOf(r)), r, "verbs")
			parts[name] = append(parts[name], entry)
			continue
		}
		scope := "Cluster"
		if r.At("namespaced").Bool() {
			scope = "Namespaced"
		}
		at[name] = len(all)
		all = append(all, copied(object.Fields("resource", object.StringOf(name), "responseKind", kindOf(r), "scope",
			object.StringOf(scope), "singularResource", text(r, "singularName")), r, "verbs", "shortNames", "categories"))
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if i, ok := at[name]; ok {
			all[i] = all[i].With("subresources", object.ListOf(parts[name]...))
		}
	}
	return object.ListOf(all...)
}

// text is a member as text; "" if it is something else.
func text(v object.Value, key string) object.Value { return object.StringOf(v.At(key).Str()) }

// copied adds lists of texts of another value.
func copied(v, from object.Value, keys ...string) object.Value {
	for _, key := range keys {
		var texts []string
		for _, item := range from.At(key).Items() {
			texts = append(texts, item.Str())
		}
		if len(texts) > 0 {
			v = v.With(key, object.Strings(texts...))
		}
	}
	return v
}

// kindOf is the kind of an APIResource, as aggregated discovery has it.
func kindOf(resource object.Value) object.Value {
	return object.Fields("group", text(resource, "group"), "version", text(resource, "version"), "kind",
		text(resource, "kind"))
}
