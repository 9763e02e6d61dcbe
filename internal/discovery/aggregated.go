package discovery

import (
	"sort"

	"plinth/internal/engine"
	"plinth/object"
)

// aggregated is everything that is served below /api or /apis in one document.
func (d *Documents) aggregated(c *catalog, root, mediaType string) *Document {
	value := func() object.Value { return c.groupDiscovery(root) }
	json := c.editions.get("aggregated "+root, func() *Document {
		return jsonDocument(mediaJSON+aggregatedParams, value())
	})
	doc := &Document{MediaType: mediaType + aggregatedParams, ETag: json.ETag}
	switch mediaType {
	case mediaProtobuf:
		doc.Body = appendProtobuf(nil, "APIGroupDiscoveryList", value())
	case mediaCBOR:
		doc.Body = object.CBOR(object.AppendJSON(nil, value()))
	case mediaYAML:
		doc.Body = yamlOf(value())
	default:
		doc = json
	}
	return doc
}

func (c *catalog) groupDiscovery(root string) object.Value {
	groups := c.groups
	if root == "api" {
		groups = nil
		if c.core != nil {
			groups = []*group{c.core}
		}
	}
	items := make([]object.Value, len(groups))
	for i, g := range groups {
		versions := make([]object.Value, len(g.versions))
		for j, gv := range g.versions {
			versions[j] = gv.discovery()
		}
		metadata := object.MapOf()
		if g.name != "" {
			metadata = object.Fields("name", object.StringOf(g.name))
		}
		items[i] = object.Fields("metadata", metadata, "versions", object.ListOf(versions...))
	}
	return object.Fields(
		"kind", object.StringOf("APIGroupDiscoveryList"),
		"apiVersion", object.StringOf("apidiscovery.k8s.io/v2"),
		"metadata", object.MapOf(),
		"items", object.ListOf(items...),
	)
}

// discovery is a group version in aggregated discovery. Freshness is about servers behind this one.
func (gv *groupVersion) discovery() object.Value {
	resources := make([]object.Value, len(gv.resources))
	for i, r := range gv.resources {
		resources[i] = resourceDiscovery(r)
	}
	return object.Fields("version", object.StringOf(gv.version), "resources", object.ListOf(resources...), "freshness", object.StringOf("Current"))
}

func resourceDiscovery(r *engine.Resource) object.Value {
	scope := "Cluster"
	if r.Namespaced {
		scope = "Namespaced"
	}
	members := []object.Member{
		{Key: "resource", Value: object.StringOf(r.Name)},
		{Key: "responseKind", Value: responseKind("", "", r.Kind)},
		{Key: "scope", Value: object.StringOf(scope)},
		{Key: "singularResource", Value: object.StringOf(r.Singular)},
		{Key: "verbs", Value: object.Strings(r.Verbs...)},
	}
	members = appendStrings(members, "shortNames", r.ShortNames)
	members = appendStrings(members, "categories", r.Categories)
	if len(r.Subresources) > 0 {
		sorted := append([]*engine.Subresource(nil), r.Subresources...)
		sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
		subresources := make([]object.Value, len(sorted))
		for i, s := range sorted {
			group, version := foreign(r, s)
			subresources[i] = object.Fields(
				"subresource", object.StringOf(s.Name),
				"responseKind", responseKind(group, version, s.Kind),
				"verbs", object.Strings(s.Verbs...),
			)
		}
		members = append(members, object.Member{Key: "subresources", Value: object.ListOf(subresources...)})
	}
	return object.MapOf(members...)
}

// responseKind is empty but for the kind where group and version are those of the URL, as in the reference.
func responseKind(group, version, kind string) object.Value {
	return object.Fields("group", object.StringOf(group), "version", object.StringOf(version), "kind", object.StringOf(kind))
}
