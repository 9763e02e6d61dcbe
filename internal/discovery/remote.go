package discovery

import (
	"slices"
	"strconv"
	"strings"

	"plinth/object"
)

// Remote is a group version that a backend serves in place of the engine, with that backend's documents of it. It does
// not change: for other documents another Remote takes its place.
type Remote struct {
	Group, Version string
	// GroupPriority and VersionPriority are those of its APIService: the place of the group among all groups, and of the
	// version in it. A higher one comes first.
	GroupPriority, VersionPriority int
	// Discovery is its entry in aggregated discovery (an APIVersionDiscovery), which also says how fresh it is.
	Discovery object.Value
	// OpenAPI3 is its OpenAPI v3 document, as JSON. Nil: it has none.
	OpenAPI3 []byte
	// Paths and Definitions are members of the maps paths and definitions of the OpenAPI v2 document. A path that the
	// document has already is left out. A definition gets another name if the document has one of its name that differs.
	Paths, Definitions []object.Member
}

func newRemoteVersion(r *Remote) *groupVersion {
	gv := &groupVersion{remote: r, group: r.Group, version: r.Version}
	if r.OpenAPI3 != nil {
		gv.openAPI = newV3Document(gv)
	}
	return gv
}

// once returns an emit that leaves out the names that were emitted before.
func once(emit func(name string, v object.Value)) func(name string, v object.Value) {
	emitted := map[string]bool{}
	return func(name string, v object.Value) {
		if !emitted[name] {
			emitted[name] = true
			emit(name, v)
		}
	}
}

func emitAll(emit func(name string, v object.Value), members []object.Member) {
	for _, m := range members {
		emit(m.Key, m.Value)
	}
}

// isRemote says whether backends serve all versions of a group.
func (c *catalog) isRemote(group string) bool {
	g := c.group(group)
	if g == nil {
		return false
	}
	for _, gv := range g.versions {
		if gv.remote == nil {
			return false
		}
	}
	return true
}

// renamed returns the group versions of backends with definitions whose names mean the same in the whole OpenAPI v2
// document. A definition that differs from the one that has its name already is called NAME_v2, or _v3 and so on, as in
// the reference (kube-openapi's package aggregator), and so do the references to it. It prints the definitions of the
// engine for it, and does so only if there are backends.
func (d *Documents) renamed(c *catalog, find Finder, builtin []*groupVersion) []*Remote {
	if len(c.remotes) == 0 {
		return nil
	}
	known := map[string]object.Value{}
	b := newBuilder(d, find, newDialect2(), builtin, groupVersionKinds(builtin))
	for _, p := range d.v3Documents(c) {
		if p.version == nil || p.version.remote == nil && !p.version.isCustom() {
			for _, item := range p.paths(d) {
				b.path(item)
			}
		}
	}
	b.models(func(name string, model object.Value) { known[name] = model })
	all := make([]*Remote, len(c.remotes))
	for i, r := range c.remotes {
		own, names := map[string]bool{}, map[string]string{}
		for _, m := range r.Definitions {
			own[m.Key] = true
		}
		for _, m := range r.Definitions {
			name := m.Key
			for n := 2; ; n++ {
				other, taken := known[name]
				_, ownWords := undocumented[m.Key]
				same := taken && (sameModel(other, m.Value) ||
					ownWords && sameModel(undescribedModel(other), undescribedModel(m.Value)))
				if !taken && (name == m.Key || !own[name]) || same {
					break
				}
				name = m.Key + "_v" + strconv.Itoa(n)
			}
			if name != m.Key {
				names[m.Key] = name
			}
		}
		all[i] = r.with(names)
		for _, m := range all[i].Definitions {
			if _, taken := known[m.Key]; !taken {
				known[m.Key] = m.Value
			}
		}
	}
	return all
}

// undescribedModel returns a definition without descriptions, with its required properties sorted. It is for those that
// this server describes in words of its own (undocumented): one of a backend is the same if it is so without.
func undescribedModel(model object.Value) object.Value {
	var properties []object.Member
	for _, m := range model.At("properties").Members() {
		properties = append(properties, object.Member{Key: m.Key, Value: m.Value.Without("description")})
	}
	var required []string
	for _, name := range model.At("required").Items() {
		required = append(required, name.Str())
	}
	slices.Sort(required)
	return model.Without("description").With("properties", object.MapOf(properties...)).
		With("required", object.Strings(required...))
}

const gvkMember = "x-kubernetes-group-version-kind"

// sameModel says whether two definitions are the same, apart from the kinds that they are for.
func sameModel(a, b object.Value) bool {
	return a.Kind() == object.Map && b.Kind() == object.Map && object.Equal(a.Without(gvkMember), b.Without(gvkMember))
}

// with returns the group version with definitions under other names.
func (r *Remote) with(names map[string]string) *Remote {
	if len(names) == 0 {
		return r
	}
	const prefix = "#/definitions/"
	var changed func(v object.Value) object.Value
	changed = func(v object.Value) object.Value {
		switch v.Kind() {
		case object.List:
			items := make([]object.Value, v.Len())
			for i, item := range v.Items() {
				items[i] = changed(item)
			}
			return object.ListOf(items...)
		case object.Map:
			var set []object.Member
			for _, m := range v.Members() {
				name, ok := strings.CutPrefix(m.Value.Str(), prefix)
				if m.Key == "$ref" && ok && names[name] != "" {
					set = append(set, object.Member{Key: m.Key, Value: object.StringOf(prefix + names[name])})
				} else if m.Value.Kind() == object.List || m.Value.Kind() == object.Map {
					set = append(set, object.Member{Key: m.Key, Value: changed(m.Value)})
				}
			}
			return v.Edit(set)
		}
		return v
	}
	other := *r
	other.Paths, other.Definitions = nil, nil
	for _, m := range r.Paths {
		other.Paths = append(other.Paths, object.Member{Key: m.Key, Value: changed(m.Value)})
	}
	for _, m := range r.Definitions {
		name := m.Key
		if names[name] != "" {
			name = names[name]
		}
		other.Definitions = append(other.Definitions, object.Member{Key: name, Value: changed(m.Value)})
	}
	return &other
}
