package discovery

import (
	"bytes"
	"sort"
	"sync/atomic"

	"plinth/internal/engine"
	"plinth/object"
)

// aggregated is the aggregated discovery document of /api or /apis. As in the reference, that of /apis alone has what
// other servers serve.
func (d *Documents) aggregated(c *catalog, root string, asked form, mediaType string) *Document {
	if asked == noPeer {
		d.counters.noPeer.Add(1)
	} else if root == "apis" && d.peers != nil {
		if merged := d.withPeers(c); merged != nil {
			return aggregatedAs(mediaType, merged.document, func() object.Value { return merged.value })
		}
	}
	json := c.representations.get("aggregated "+root, func() *Document {
		return textDocument(mediaJSON+aggregatedParams, c.appendAggregated(nil, root, &d.counters.aggregated))
	})
	return aggregatedAs(mediaType, json, func() object.Value { return c.groupDiscovery(root) })
}

// aggregatedAs prints an aggregated discovery document in a media type. Its ETag is that of the JSON.
func aggregatedAs(mediaType string, json *Document, value func() object.Value) *Document {
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

// below returns the groups that are served below /api or /apis.
func (c *catalog) below(root string) []*group {
	switch {
	case root != "api":
		return c.groups
	case c.core != nil:
		return []*group{c.core}
	}
	return nil
}

// appendAggregated prints the value of groupDiscovery from the kept bytes of the group versions. printed counts those
// that had to be printed.
func (c *catalog) appendAggregated(text []byte, root string, printed *atomic.Int64) []byte {
	envelope := object.AppendJSON(nil, discoveryList(nil))
	before, after, _ := bytes.Cut(envelope, []byte("[]")) // it contains one list
	text = append(append(text, before...), '[')
	opening := ""
	for _, g := range c.below(root) {
		text = append(append(text, opening...), `{"metadata":{`...)
		opening = ","
		if g.name != "" {
			text = object.AppendString(append(text, `"name":`...), g.name)
		}
		text = append(text, `},"versions":[`...)
		for i, gv := range g.versions {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, gv.aggregate(printed)...)
		}
		text = append(text, "]}"...)
	}
	return append(append(text, ']'), after...)
}

// aggregate is the group version's part of aggregated discovery. It is printed once.
func (gv *groupVersion) aggregate(printed *atomic.Int64) []byte {
	gv.aggregateOnce.Do(func() {
		printed.Add(1)
		gv.aggregated = object.AppendJSON(nil, gv.discovery())
	})
	return gv.aggregated
}

func (c *catalog) groupDiscovery(root string) object.Value { return discoveryList(c.groupItems(root)) }

// discoveryList is an APIGroupDiscoveryList.
func discoveryList(items []object.Value) object.Value {
	return object.Fields(
		"kind", object.StringOf("APIGroupDiscoveryList"),
		"apiVersion", object.StringOf("apidiscovery.k8s.io/v2"),
		"metadata", object.MapOf(),
		"items", object.ListOf(items...),
	)
}

// groupItems are the groups below /api or /apis, each an APIGroupDiscovery.
func (c *catalog) groupItems(root string) []object.Value {
	groups := c.below(root)
	items := make([]object.Value, len(groups))
	for i, g := range groups {
		versions := make([]object.Value, len(g.versions))
		for j, gv := range g.versions {
			versions[j] = gv.discovery()
		}
		items[i] = groupItem(g.name, versions)
	}
	return items
}

// groupItem is an APIGroupDiscovery.
func groupItem(name string, versions []object.Value) object.Value {
	metadata := object.MapOf()
	if name != "" {
		metadata = object.Fields("name", object.StringOf(name))
	}
	return object.Fields("metadata", metadata, "versions", object.ListOf(versions...))
}

// discovery is the group version in aggregated discovery. What the engine serves is always Current; the documents of a
// backend may be outdated.
func (gv *groupVersion) discovery() object.Value {
	if gv.remote != nil {
		return gv.remote.Discovery
	}
	resources := make([]object.Value, len(gv.resources))
	for i, r := range gv.resources {
		resources[i] = resourceDiscovery(r)
	}
	return object.Fields("version", object.StringOf(gv.version), "resources", object.ListOf(resources...), "freshness",
		object.StringOf("Current"))
}

func resourceDiscovery(r *engine.Resource) object.Value {
	scope := "Cluster"
	if r.Namespaced {
		scope = "Namespaced"
	}
	// As in the reference, the kind of a custom type has its group and version, and status comes before scale. The
	// kind of a built-in type has neither if they are those of the URL, and subresources are sorted.
	group, version := "", ""
	if isCustom(r) {
		group, version = r.Group, r.Version
	}
	members := []object.Member{
		{Key: "resource", Value: object.StringOf(r.Name)},
		{Key: "responseKind", Value: responseKind(group, version, r.Kind)},
		{Key: "scope", Value: object.StringOf(scope)},
		{Key: "singularResource", Value: object.StringOf(r.Singular)},
		{Key: "verbs", Value: object.Strings(r.ListedVerbs()...)},
	}
	members = appendStrings(members, "shortNames", r.ShortNames)
	members = appendStrings(members, "categories", r.Categories)
	if len(r.Subresources) > 0 {
		sorted := append([]*engine.Subresource(nil), r.Subresources...)
		if !isCustom(r) {
			sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
		}
		subresources := make([]object.Value, len(sorted))
		for i, s := range sorted {
			group, version := bodyVersion(r, s)
			if isCustom(r) {
				group, version = s.Group, s.Version
			}
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

// responseKind is a GroupVersionKind of aggregated discovery; group and version may be empty.
func responseKind(group, version, kind string) object.Value {
	return object.Fields("group", object.StringOf(group), "version", object.StringOf(version), "kind",
		object.StringOf(kind))
}
