package discovery

import (
	"maps"
	"slices"

	utilsort "k8s.io/apimachinery/pkg/util/sort"

	"plinth/object"
)

// Peers are other servers of the same objects, which may serve types that this server does not. They do not change: for
// other ones another Peers takes their place.
type Peers struct {
	// Own is the identity of this server: servers are merged in the order of their identities, so that all of them make
	// the same document.
	Own string
	By  map[string][]object.Value // by identity, the groups (APIGroupDiscovery) of /apis
}

// merged is the aggregated discovery document of /apis of several servers.
type merged struct {
	catalog  *catalog
	peers    *Peers
	value    object.Value
	document *Document // as JSON; nil: it is that of this server alone
}

// withPeers returns what this server and others serve; nil if that is what this one serves alone.
func (d *Documents) withPeers(c *catalog) *merged {
	peers := d.peers()
	m := d.merged.Load()
	if m != nil && m.catalog == c && m.peers == peers {
		d.counters.mergedBefore.Add(1)
	} else {
		d.counters.mergedNow.Add(1)
		m = &merged{catalog: c, peers: peers}
		if groups, changed := mergeGroups(c.groupItems("apis"), peers); changed {
			m.value = discoveryList(groups)
			m.document = jsonDocument(mediaJSON+aggregatedParams, m.value)
		}
		d.merged.Store(m)
	}
	if m.document == nil {
		return nil
	}
	return m
}

// mergeGroups merges the groups of this server with those of the others; false: they are those of this one. It takes
// the same from each as the reference (peer_aggregated_handler.go), and has the same order:
//
//   - What several servers have is that of the first one, in the order of the identities. Of a resource in which they
//     differ it is the verbs of all, and the subresources of all, of which the last one counts.
//   - The lists of names are merged so that each keeps its order, as far as they agree.
//   - If no server has anything that another one lacks or has otherwise, the list of this server stays as it is.
func mergeGroups(own []object.Value, peers *Peers) (groups []object.Value, changed bool) {
	if peers == nil || len(peers.By) == 0 {
		return own, false
	}
	all := maps.Clone(peers.By)
	all[peers.Own] = own
	known, ownNames := map[string]object.Value{}, namesOf(own, groupName)
	var lists [][]string
	differs, sameNames := false, true
	for _, identity := range slices.Sorted(maps.Keys(all)) {
		for _, group := range all[identity] {
			name := groupName(group)
			before, ok := known[name]
			if !ok {
				known[name] = group
				continue
			}
			versions, other := combine(before.At("versions").Items(), group.At("versions").Items(), versionName,
				mergeVersions)
			if other {
				known[name] = before.With("versions", object.ListOf(versions...))
				differs = true
			}
		}
		names := namesOf(all[identity], groupName)
		lists = append(lists, names)
		sameNames = sameNames && slices.Equal(names, ownNames)
	}
	order := ownNames
	switch {
	case !differs && sameNames:
		return own, false
	case !sameNames:
		order = utilsort.MergePreservingRelativeOrder(lists)
	}
	for _, name := range order {
		if group, ok := known[name]; ok {
			groups = append(groups, group)
		}
	}
	return groups, true
}

func groupName(group object.Value) string       { return group.At("metadata", "name").Str() }
func versionName(version object.Value) string   { return version.At("version").Str() }
func resourceName(resource object.Value) string { return resource.At("resource").Str() }

func namesOf(list []object.Value, name func(object.Value) string) []string {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = name(v)
	}
	return names
}

// combine merges two lists of things that have names. merge merges two of one name; false: that is the first of them.
// It returns false itself if the result is a.
func combine(a, b []object.Value, name func(object.Value) string,
	merge func(a, b object.Value) (object.Value, bool)) (list []object.Value, changed bool) {
	known := map[string]object.Value{}
	for _, v := range a {
		known[name(v)] = v
	}
	for _, v := range b {
		before, ok := known[name(v)]
		if !ok {
			known[name(v)] = v
		} else if both, other := merge(before, v); other {
			known[name(v)], changed = both, true
		}
	}
	order, other := namesOf(a, name), namesOf(b, name)
	if !slices.Equal(order, other) {
		changed, order = true, utilsort.MergePreservingRelativeOrder([][]string{order, other})
	}
	if !changed {
		return a, false
	}
	for _, key := range order {
		if v, ok := known[key]; ok {
			list = append(list, v)
			delete(known, key)
		}
	}
	return list, true
}

// mergeVersions merges one version of a group.
func mergeVersions(a, b object.Value) (object.Value, bool) {
	resources, changed := combine(a.At("resources").Items(), b.At("resources").Items(), resourceName, mergeResources)
	if !changed {
		return a, false
	}
	return a.With("resources", object.ListOf(resources...)), true
}

// mergeResources merges what two servers say of one resource.
func mergeResources(a, b object.Value) (object.Value, bool) {
	if object.Equal(a, b) {
		return a, false
	}
	verbs := map[string]bool{}
	subresources := map[string]object.Value{}
	for _, of := range []object.Value{a, b} {
		for _, verb := range of.At("verbs").Items() {
			verbs[verb.Str()] = true
		}
		for _, s := range of.At("subresources").Items() {
			subresources[s.At("subresource").Str()] = s
		}
	}
	both := a.With("verbs", object.Strings(slices.Sorted(maps.Keys(verbs))...))
	if len(subresources) > 0 {
		var list []object.Value
		for _, name := range slices.Sorted(maps.Keys(subresources)) {
			list = append(list, subresources[name])
		}
		both = both.With("subresources", object.ListOf(list...))
	}
	return both, true
}

// Without returns groups without those versions that are left out.
func Without(groups []object.Value, leftOut func(group, version string) bool) (rest []object.Value) {
	for _, group := range groups {
		name := groupName(group)
		versions := group.At("versions").Items()
		kept := slices.DeleteFunc(slices.Clone(versions), func(v object.Value) bool {
			return leftOut(name, versionName(v))
		})
		if len(kept) == len(versions) {
			rest = append(rest, group)
		} else if len(kept) > 0 {
			rest = append(rest, groupItem(name, kept))
		}
	}
	return rest
}

// EachResource calls each with all resources of groups.
func EachResource(groups []object.Value, each func(group, version, resource string)) {
	for _, group := range groups {
		for _, version := range group.At("versions").Items() {
			for _, resource := range version.At("resources").Items() {
				each(groupName(group), versionName(version), resourceName(resource))
			}
		}
	}
}
