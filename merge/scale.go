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
// operation and subresource on the way; only the version and the path change.
type Replicas map[string]Path

// scaleVersion is the API version of the scale subresource.
const scaleVersion = "autoscaling/v1"

// replicasInScale is the path that stands for the field in a Scale.
var replicasInScale = Path{FieldElement("spec"), FieldElement("replicas")}

// ToScale is the managedFields of the scale subresource: whoever owns the field in the main resource owns
// spec.replicas here.
func (r Replicas) ToScale(managed object.Value) (object.Value, error) {
	entries, err := parseManaged(managed, new(arena))
	if err != nil {
		return object.Nil, err
	}
	var out []*entry
	for _, e := range entries {
		if path := r[e.APIVersion]; path != nil && e.set.Has(path) {
			scale := &entry{Entry: e.Entry, set: single(replicasInScale)}
			scale.APIVersion = scaleVersion
			out = put(out, scale)
		}
	}
	return printManaged(out), nil
}

// FromScale applies to the managedFields of the main resource what a write to the scale subresource has changed in its
// own:
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
// (conformance/merge, "replicas of a scale").
func (r Replicas) FromScale(managed, scale object.Value, apiVersion string) (object.Value, error) {
	parents, err := parseManaged(managed, new(arena))
	if err != nil {
		return object.Nil, err
	}
	scales, err := parseManaged(scale, new(arena))
	if err != nil {
		return object.Nil, err
	}
	var out []*entry
	// 1. The entries of the main resource: keep them, or take the field from them. Those of the Scale that are found
	// here are done with.
	for _, e := range parents {
		path, known := r[e.APIVersion]
		if !known {
			continue
		}
		if path == nil || !e.set.Has(path) {
			out = put(out, e)
			continue
		}
		as := e.Entry
		as.APIVersion = scaleVersion
		if at := indexOf(scales, &as); at >= 0 {
			out = put(out, e)
			scales = append(scales[:at:at], scales[at+1:]...)
			continue
		}
		rest := *e
		if rest.set = e.set.Minus(single(path)); !rest.set.Empty() {
			out = put(out, &rest)
		}
	}
	// 2. What is left of the Scale has come to own the field by this write.
	for _, e := range scales {
		if e.set.Has(replicasInScale) {
			main := &entry{Entry: e.Entry, set: single(r[apiVersion])}
			main.APIVersion, main.Time = apiVersion, ""
			if at := indexOf(parents, &e.Entry); at >= 0 {
				main.Time = parents[at].Time
			}
			out = put(out, main)
		}
	}
	return printManaged(out), nil
}

// put adds an entry, or replaces the one of the same manager.
func put(entries []*entry, e *entry) []*entry {
	if at := indexOf(entries, &e.Entry); at >= 0 {
		entries[at] = e
		return entries
	}
	return append(entries, e)
}
