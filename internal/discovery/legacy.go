package discovery

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/engine"
	"plinth/object"
)

// legacy serves the discovery documents that are not aggregated. parts are the segments of the path: api, api V, apis,
// apis G or apis G V. The document of a group version that a backend serves is the backend's to answer.
func (d *Documents) legacy(parts []string, accept string) (doc *Document, ok bool, err error) {
	c := d.catalog()
	var gv *groupVersion
	var g *group
	switch {
	case len(parts) == 2 && parts[0] == "api":
		if gv = c.find("", parts[1]); gv == nil || gv.remote != nil {
			return nil, false, nil
		}
	case len(parts) == 3:
		if gv = c.find(parts[1], parts[2]); gv == nil || gv.remote != nil || parts[1] == "" {
			return nil, false, nil
		}
	case len(parts) == 2:
		if g = c.legacy().byName[parts[1]]; g == nil || parts[1] == "" {
			return nil, false, nil
		}
	}
	if parts[0] == "api" || gv != nil {
		if err := literal(accept, d.media.object...); err != nil {
			return nil, true, err
		}
	}
	mediaType, asked, err := d.negotiate(accept, len(parts) == 1)
	if err != nil {
		return nil, true, err
	}
	switch {
	case asked != unaggregated:
		return d.aggregated(c, parts[0], asked, mediaType), true, nil
	case gv != nil:
		return represent(mediaType, &gv.representations, "resources", "APIResourceList", func() object.Value {
			d.counters.lists.Add(1)
			return gv.resourceList(c.types, d.noHashes)
		}), true, nil
	case g != nil:
		return represent(mediaType, nil, "", "APIGroup", func() object.Value { return g.value(true) }), true, nil
	case parts[0] == "api":
		return represent(mediaType, nil, "", "APIVersions", func() object.Value { return d.versions(c) }), true, nil
	default:
		return represent(mediaType, &c.representations, "groups", "APIGroupList", c.groupList), true, nil
	}
}

// represent prints a discovery document in a media type. The JSON form is kept in representations unless that is nil.
func represent(
	mediaType string, representations *representations, name, kind string, value func() object.Value,
) *Document {
	switch mediaType {
	case mediaProtobuf:
		return &Document{MediaType: mediaType, Body: appendProtobuf(nil, kind, value())}
	case mediaCBOR:
		return &Document{MediaType: mediaType, Body: object.CBOR(object.AppendJSON(nil, value()))}
	case mediaYAML:
		return &Document{MediaType: mediaType, Body: yamlOf(value())}
	}
	make := func() *Document {
		doc := jsonDocument(mediaJSON, value())
		doc.ETag = "" // as in the reference
		return doc
	}
	if representations == nil {
		return make()
	}
	return representations.get(name, make)
}

// yamlOf prints a value of this package as YAML.
func yamlOf(v object.Value) []byte {
	text, err := object.YAML(object.AppendJSON(nil, v))
	if err != nil {
		panic("discovery: own JSON does not parse: " + err.Error())
	}
	return text
}

// versions is /api. As in the reference it has no apiVersion, and neither has /api/v1.
func (d *Documents) versions(c *catalog) object.Value {
	var versions []string
	if c.core != nil {
		for _, gv := range c.core.versions {
			versions = append(versions, gv.version)
		}
	}
	return object.Fields(
		"kind", object.StringOf("APIVersions"),
		"versions", object.Strings(versions...),
		"serverAddressByClientCIDRs", object.ListOf(object.Fields(
			"clientCIDR", object.StringOf("0.0.0.0/0"),
			"serverAddress", object.StringOf(d.address),
		)),
	)
}

// legacyGroups are the named groups with their versions in the order of the documents that are not aggregated.
type legacyGroups struct {
	groups []*group
	byName map[string]*group
}

// legacyOrder sorts them as their APIServices say: a group is where the first of its APIServices is, by priority and
// then by name, which begins with the version. A group version without an APIService is left out. If all of a group
// are, the server itself answers for it, which knows of no APIServices: such a group is in byName alone.
func (c *catalog) legacyOrder() *legacyGroups {
	l := &legacyGroups{byName: map[string]*group{}}
	type place struct {
		priority int64
		name     string
	}
	places := map[*group]place{}
	for name, versions := range c.versionsOfServices() {
		present := slices.DeleteFunc(slices.Clone(versions), c.local.lacks)
		g := &group{name: name, versions: present}
		l.byName[name] = g
		if len(present) == 0 {
			g.versions = versions
		} else {
			l.groups = append(l.groups, g)
		}
		slices.SortFunc(g.versions, func(a, b *groupVersion) int {
			return cmp.Or(cmp.Compare(c.placed(b).Version, c.placed(a).Version),
				version.CompareKubeAwareVersionStrings(b.version, a.version))
		})
		first := place{priority: -1}
		for _, gv := range g.versions {
			p := place{c.placed(gv).Group, gv.version + "." + gv.group}
			if p.priority > first.priority || p.priority == first.priority && p.name < first.name {
				first = p
			}
		}
		places[g] = first
	}
	slices.SortFunc(l.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(places[b].priority, places[a].priority), strings.Compare(places[a].name, places[b].name))
	})
	return l
}

// versionsOfServices are the versions of all named groups: of those that are served, and of those that only an
// APIService says to be.
func (c *catalog) versionsOfServices() map[string][]*groupVersion {
	all := make(map[string][]*groupVersion, len(c.groups))
	for _, g := range c.groups {
		all[g.name] = slices.Clone(g.versions)
	}
	if c.local == nil {
		return all
	}
	for key := range c.local.By {
		if group, version := key[0], key[1]; group != "" && c.find(group, version) == nil {
			all[group] = append(all[group], &groupVersion{group: group, version: version})
		}
	}
	return all
}

// placed is the priority of a group version in these documents.
func (c *catalog) placed(gv *groupVersion) Priority {
	if c.local != nil && gv.remote == nil {
		if p, ok := c.local.By[[2]string{gv.group, gv.version}]; ok {
			return p
		}
	}
	ofGroup, ofVersion := gv.priorities()
	return Priority{ofGroup, ofVersion}
}

// groupList is /apis.
func (c *catalog) groupList() object.Value {
	groups := make([]object.Value, len(c.legacy().groups))
	for i, g := range c.legacy().groups {
		groups[i] = g.value(false)
	}
	return object.Fields("kind", object.StringOf("APIGroupList"), "apiVersion", object.StringOf("v1"), "groups",
		object.ListOf(groups...))
}

// value is /apis/G, or without kind and apiVersion an item of /apis.
func (g *group) value(typed bool) object.Value {
	versions := make([]object.Value, len(g.versions))
	for i, gv := range g.versions {
		versions[i] = object.Fields("groupVersion", object.StringOf(gv.name()), "version", object.StringOf(gv.version))
	}
	v := object.Fields("name", object.StringOf(g.name), "versions", object.ListOf(versions...), "preferredVersion",
		versions[0])
	if typed {
		v = v.Edit([]object.Member{
			{Key: "kind", Value: object.StringOf("APIGroup")},
			{Key: "apiVersion", Value: object.StringOf("v1")},
		})
	}
	return v
}

// resourceList is /apis/G/V: resources and subresources in one list that is sorted by name. As in the reference, the
// subresources of a custom type are not sorted: status comes before scale.
func (gv *groupVersion) resourceList(types *engine.Types, noHashes bool) object.Value {
	type entry struct {
		order string
		value object.Value
	}
	var entries []entry
	for _, r := range gv.resources {
		stored := storageVersionOf(r)
		if noHashes && !isCustom(r) || isCustom(r) && types.OfPath(r.Stored.Path).Served != r.Stored.Storage {
			stored = storageVersion{} // as in the reference, if no version that is served is the stored one
		}
		entries = append(entries, entry{r.Name, gv.resource(r, stored)})
		for _, s := range r.Subresources {
			name := r.Name + "/" + s.Name
			e := entry{name, subresource(r, s, name)}
			if isCustom(r) {
				e.order = r.Name + "/" // the same for all of them: the sort is stable
			}
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.order, b.order) })
	items := make([]object.Value, len(entries))
	for i, e := range entries {
		items[i] = e.value
	}
	members := []object.Member{
		{Key: "kind", Value: object.StringOf("APIResourceList")},
		{Key: "groupVersion", Value: object.StringOf(gv.name())},
		{Key: "resources", Value: object.ListOf(items...)},
	}
	if gv.group != "" {
		members = append(members, object.Member{Key: "apiVersion", Value: object.StringOf("v1")})
	}
	return object.MapOf(members...)
}

func (gv *groupVersion) resource(r *engine.Resource, stored storageVersion) object.Value {
	members := []object.Member{
		{Key: "name", Value: object.StringOf(r.Name)},
		{Key: "singularName", Value: object.StringOf(r.Singular)},
		{Key: "namespaced", Value: object.BoolOf(r.Namespaced)},
		{Key: "kind", Value: object.StringOf(r.Kind)},
		{Key: "verbs", Value: object.Strings(r.ListedVerbs()...)},
	}
	members = appendStrings(members, "shortNames", r.ShortNames)
	members = appendStrings(members, "categories", r.Categories)
	if hash := stored.hash(); hash != "" {
		members = append(members, object.Member{Key: "storageVersionHash", Value: object.StringOf(hash)})
	}
	return object.MapOf(members...)
}

func subresource(r *engine.Resource, s *engine.Subresource, name string) object.Value {
	members := []object.Member{
		{Key: "name", Value: object.StringOf(name)},
		{Key: "singularName", Value: object.StringOf("")},
		{Key: "namespaced", Value: object.BoolOf(r.Namespaced)},
		{Key: "kind", Value: object.StringOf(s.Kind)},
		{Key: "verbs", Value: object.Strings(s.Verbs...)},
	}
	if group, version := bodyVersion(r, s); version != "" {
		members = append(members,
			object.Member{Key: "group", Value: object.StringOf(group)},
			object.Member{Key: "version", Value: object.StringOf(version)})
	}
	return object.MapOf(members...)
}

// bodyVersion is the group and version of a subresource's body if they differ from those of its resource, else "".
func bodyVersion(r *engine.Resource, s *engine.Subresource) (group, version string) {
	if s.Version == "" || s.Group == r.Group && s.Version == r.Version {
		return "", ""
	}
	return s.Group, s.Version
}

func appendStrings(members []object.Member, key string, items []string) []object.Member {
	if len(items) == 0 {
		return members
	}
	return append(members, object.Member{Key: key, Value: object.Strings(items...)})
}
