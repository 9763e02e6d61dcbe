package plane

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// pastModel is what the past is compared with: it keeps every version, and who has written it, and forgets nothing.
type pastModel struct {
	versions map[pastKey][]pastVersion // ascending
	times    map[int64]time.Time       // of all revisions
	newest   int64
	// keptFrom is, for each kind, the oldest revision as of which the past has to know what there was. Before it an
	// answer is right, or it is 410.
	keptFrom [kinds]int64
	// purged has, for each object that was purged, the revision up to which changes have ended purged versions.
	purged  map[pastKey]int64
	form    widgetForm // of the definition of Widgets as it is now
	defined bool
}

const (
	configMaps = iota
	deployments
	widgets
	kinds
)

// kindPaths are those of the store.
var kindPaths = [kinds]string{"/configmaps", "apps/deployments", "example.com/widgets"}

// pastKey is an object.
type pastKey struct {
	kind            int
	namespace, name string
}

// pastVersion is what a change has made of an object; object nil: it is gone.
type pastVersion struct {
	revision int64
	object   map[string]any
	by       pastBy
}

// pastBy says who has made a change, by the names that a record has.
type pastBy struct{ user, impersonator, manager, verb, subresource, auditID string }

// widgetForm is what differs between the definitions of Widgets.
type widgetForm struct{ v2, color, level bool }

func (m *pastModel) add(k pastKey, v pastVersion) { m.versions[k] = append(m.versions[k], v) }

// keys are the objects that there are, or have been, in the order of lists.
func (m *pastModel) keys() []pastKey {
	return slices.SortedFunc(maps.Keys(m.versions), func(a, b pastKey) int {
		return cmp.Or(a.kind-b.kind, strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
}

// live is an object as it is; nil: there is none.
func (m *pastModel) live(k pastKey) map[string]any { return m.asOf(k, math.MaxInt64) }

func (m *pastModel) asOf(k pastKey, revision int64) map[string]any {
	var found map[string]any
	for _, v := range m.versions[k] {
		if v.revision <= revision {
			found = v.object
		}
	}
	return found
}

// isPurged says whether what an object was as of a revision was purged.
func (m *pastModel) isPurged(k pastKey, revision int64) bool {
	was := false
	for _, v := range m.versions[k] {
		if v.revision > revision {
			return was && v.revision <= m.purged[k]
		}
		was = v.object != nil
	}
	return false
}

// listsPurged says whether a list as of a revision would have an object whose version was purged. Its labels are not
// known any more.
func (m *pastModel) listsPurged(kind int, revision int64, s pastSelection) bool {
	for k := range m.purged {
		if k.kind == kind && (s.namespace == "" || k.namespace == s.namespace) && (s.name == "" || k.name == s.name) &&
			m.isPurged(k, revision) {
			return true
		}
	}
	return false
}

// expire notes that what was changed before a moment need not be kept.
func (m *pastModel) expire(oldest time.Time) {
	for revision, at := range m.times {
		if at.Before(oldest) {
			m.forget(revision)
		}
	}
}

// forget notes that what there was before a revision need not be kept.
func (m *pastModel) forget(before int64) {
	for kind := range m.keptFrom {
		m.keptFrom[kind] = max(m.keptFrom[kind], before)
	}
}

// shown is an object as a version of the API shows it today.
func (m *pastModel) shown(kind int, version string, obj map[string]any) map[string]any {
	if kind != widgets || obj == nil {
		return obj
	}
	obj = maps.Clone(obj)
	obj["apiVersion"] = "example.com/" + version
	spec, ok := obj["spec"].(map[string]any)
	if !ok {
		return obj
	}
	spec = maps.Clone(spec)
	if !m.form.color {
		delete(spec, "color")
	}
	if !m.form.level {
		delete(spec, "level")
	} else if _, ok := spec["level"]; !ok {
		spec["level"] = 3.0
	}
	obj["spec"] = spec
	return obj
}

// pastSelection is what a list is asked for; empty fields select everything.
type pastSelection struct{ namespace, name, team string }

// list is the objects of a kind as of a revision, in the order of a list.
func (m *pastModel) list(kind int, version string, revision int64, s pastSelection) (all []any) {
	for _, k := range m.keys() {
		if k.kind != kind || s.namespace != "" && k.namespace != s.namespace || s.name != "" && k.name != s.name {
			continue
		}
		obj := m.shown(kind, version, m.asOf(k, revision))
		if obj == nil || s.team != "" && textAt(obj, "metadata", "labels", "team") != s.team {
			continue
		}
		all = append(all, obj)
	}
	return all
}

// record is the changes of an object before a revision, the newest first. kept is how many of them the past has to
// know.
func (m *pastModel) record(k pastKey, version string, before int64) (changes []any, kept int) {
	var last map[string]any
	for _, v := range m.versions[k] {
		if v.revision >= before {
			break
		}
		now := bare(m.shown(k.kind, version, v.object))
		change := map[string]any{"resourceVersion": fmt.Sprint(v.revision),
			"time": m.times[v.revision].UTC().Format(time.RFC3339Nano)}
		for name, value := range map[string]string{"user": v.by.user, "impersonator": v.by.impersonator,
			"manager": v.by.manager, "verb": v.by.verb, "subresource": v.by.subresource, "auditID": v.by.auditID} {
			if value != "" {
				change[name] = value
			}
		}
		switch {
		case now == nil:
			change["change"], change["object"] = "deleted", last
		case last == nil:
			change["change"], change["object"] = "created", now
		default:
			change["change"], change["patch"] = "modified", mergePatch(last, now)
		}
		if m.isPurged(k, v.revision-1) || m.isPurged(k, v.revision) {
			delete(change, "object")
			delete(change, "patch")
			change["purged"] = true
		}
		changes = append(changes, change)
		if last = now; v.revision > m.keptFrom[k.kind] {
			kept++
		}
	}
	slices.Reverse(changes)
	return changes, kept
}

// bare is an object as a record shows it.
func bare(obj map[string]any) map[string]any {
	if obj == nil {
		return nil
	}
	obj = maps.Clone(obj)
	metadata := maps.Clone(obj["metadata"].(map[string]any))
	delete(metadata, "managedFields")
	delete(metadata, "resourceVersion")
	obj["metadata"] = metadata
	return obj
}

// mergePatch is the least patch of RFC 7386 that makes one object into another.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	for name, value := range to {
		a, wasMap := from[name].(map[string]any)
		b, isMap := value.(map[string]any)
		switch {
		case reflect.DeepEqual(from[name], value):
		case wasMap && isMap:
			patch[name] = mergePatch(a, b)
		default:
			patch[name] = value
		}
	}
	return patch
}

// textAt is the text at a path of an object; "": there is none.
func textAt(obj any, path ...string) string {
	for _, name := range path {
		m, _ := obj.(map[string]any)
		obj = m[name]
	}
	text, _ := obj.(string)
	return text
}
