package merge

import "plinth/object"

// Replicas is the path of the field behind the replicas of the scale subresource, in each API version of the main
// resource (SSA-14). The path is nil for a version without that subresource; a version that does not exist is not in
// the map.
//
// The problem: a write to /scale brings a Scale, an object of another type whose only field with owners is
// .spec.replicas, while ownership is recorded in the main resource, where the field may be .spec.workers. A merge
// compares objects of one type only. So the managers of the main resource are translated to a Scale (ToScale), the
// merge is made there as for any object, and its outcome is translated back (FromScale). Managers keep their names,
// operation and subresource on the way; only the version and the path change (ScaleHandler in the reference).
//
// In a Workload whose path is .spec.workers, alice owns .spec.workers and .spec.image by an apply in example.com/v1,
// and an autoscaler applies replicas: 5 to /scale, with force:
//
//	ToScale        alice Apply autoscaling/v1 {.spec.replicas}
//	the merge      autoscaler Apply autoscaling/v1 /scale {.spec.replicas}        alice has lost her only field
//	FromScale      alice Apply example.com/v1 {.spec.image}
//	               autoscaler Apply example.com/v1 /scale {.spec.workers}
type Replicas map[string]Path

// scaleVersion is the API version of the scale subresource.
const scaleVersion = "autoscaling/v1"

// replicasInScale is the path that stands for the field in a Scale.
var replicasInScale = Path{FieldElement("spec"), FieldElement("replicas")}

// ToScale is the managedFields of the scale subresource: the owners of the field in the main resource own spec.replicas
// here.
func (r Replicas) ToScale(managed object.Value) (object.Value, error) {
	entries, err := parseManaged(managed, new(arena))
	if err != nil {
		return object.Nil, err
	}
	var out entryList
	for _, e := range entries {
		if path := r[e.APIVersion]; path != nil && e.set.Has(path) {
			scale := &entry{Entry: e.Entry, set: single(replicasInScale)}
			scale.APIVersion = scaleVersion
			out.put(scale)
		}
	}
	return printManaged(out.entries), nil
}

// FromScale applies to the managedFields of the main resource the changes that a write to the scale subresource has
// made in those of the Scale:
//
//   - an entry that owned the field and is not among those of the scale any longer loses it;
//   - an entry of the scale that is not in the main resource is added, in the version apiVersion;
//   - all others stay. Entries of versions that do not exist are dropped.
//
// managed are the managedFields before the write, scale those of the Scale after it, and apiVersion the version of the
// main resource in which the write was made. An error is one of managedFields that cannot be read.
//
// The manager of an update is looked up under the version that ToScale gave it. The reference looks it up under the
// version of the main resource, does not find it, and splits its entry in two; the next write loses one of them
// (conformance/oracle/merge, "replicas of a scale").
func (r Replicas) FromScale(managed, scale object.Value, apiVersion string) (object.Value, error) {
	parents, err := parseManaged(managed, new(arena))
	if err != nil {
		return object.Nil, err
	}
	scales, err := parseManaged(scale, new(arena))
	if err != nil {
		return object.Nil, err
	}
	var out, before, left entryList
	for _, e := range parents {
		before.put(e)
	}
	for _, e := range scales {
		left.put(e)
	}
	// 1. The entries of the main resource: keep them, or take the field from them. Those of the Scale that are found
	// here are done with.
	for _, e := range parents {
		path, known := r[e.APIVersion]
		if !known {
			continue
		}
		if path == nil || !e.set.Has(path) {
			out.put(e)
			continue
		}
		as := e.Entry
		as.APIVersion = scaleVersion
		if left.take(&as) {
			out.put(e)
			continue
		}
		rest := *e
		if rest.set = e.set.Minus(single(path)); !rest.set.Empty() {
			out.put(&rest)
		}
	}
	// 2. The remaining entries of the Scale have become owners of the field by this write.
	for _, e := range left.entries {
		if e != nil && e.set.Has(replicasInScale) {
			main := &entry{Entry: e.Entry, set: single(r[apiVersion])}
			main.APIVersion, main.Time = apiVersion, ""
			if at, ok := before.positions[e.id()]; ok {
				main.Time = before.entries[at].Time
			}
			out.put(main)
		}
	}
	return printManaged(out.entries), nil
}

// entryList is entries in the order in which they were added, with an index by manager, for loops over all entries: a
// client may send ten thousand appliers, and to search a list for each of them would be quadratic.
//
//	positions[e.id()] = i  ⇔  entries[i] = e        entries that were taken are nil, and have no position
type entryList struct {
	entries   []*entry
	positions map[managerID]int
}

// put adds an entry, or replaces that of the same manager.
func (l *entryList) put(e *entry) {
	id := e.id()
	if at, ok := l.positions[id]; ok {
		l.entries[at] = e
		return
	}
	if l.positions == nil {
		l.positions = map[managerID]int{}
	}
	l.positions[id] = len(l.entries)
	l.entries = append(l.entries, e)
}

// take removes the entry of e's manager, and says whether there was one.
func (l *entryList) take(e *Entry) bool {
	id := e.id()
	at, ok := l.positions[id]
	if ok {
		l.entries[at] = nil
		delete(l.positions, id)
	}
	return ok
}
