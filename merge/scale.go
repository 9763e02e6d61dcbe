package merge

import "plinth/object"

// Replicas says where the scale subresource finds its number (SSA-14): the path in each API version of the main resource.
// A version without a path has no scale subresource; one that is missing is not known at all.
type Replicas map[string]Path

// scaleVersion is the API version of the scale subresource.
const scaleVersion = "autoscaling/v1"

var replicasInScale = Path{FieldElement("spec"), FieldElement("replicas")}

// ToScale is the managedFields of the scale subresource, made from those of the main resource: who owns the replicas there
// owns them here.
func (r Replicas) ToScale(managed object.Value) (object.Value, error) {
	entries, err := parseManaged(managed, new(room))
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

// FromScale brings what a write to the scale subresource did to its managedFields back into those of the main resource,
// whose API version is given for the managers that come new.
func (r Replicas) FromScale(managed, scale object.Value, apiVersion string) (object.Value, error) {
	parents, err := parseManaged(managed, new(room))
	if err != nil {
		return object.Nil, err
	}
	scales, err := parseManaged(scale, new(room))
	if err != nil {
		return object.Nil, err
	}
	var out []*entry
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
