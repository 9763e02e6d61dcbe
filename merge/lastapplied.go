package merge

import (
	"errors"

	"plinth/object"
	"plinth/schema"
)

// kubectl is the manager whose objects may come from client-side apply (SSA-13). Other managers opt out of all this.
const kubectl = "kubectl"

// LastApplied is the annotation in which client-side apply keeps what it applied.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// maxAnnotations is how many bytes the annotations of an object may have.
const maxAnnotations = 256 << 10

// applyAfterClientSide looks at an apply that failed. Conflicts about fields that client-side apply set, and that nobody has
// changed since, are none: where there are no others the apply is forced.
func (k *Kind) applyAfterClientSide(live, intent object.Value, fields Set, w Writer, r *room, failed error) (object.Value, []*entry, error) {
	var conflicts *ConflictError
	if !errors.As(failed, &conflicts) {
		return object.Nil, nil, failed
	}
	set, ok := k.setClientSide(live, w.APIVersion)
	if !ok {
		return object.Nil, nil, failed
	}
	rest := &ConflictError{}
	for _, c := range conflicts.Conflicts {
		if !set.Has(c.Path) {
			rest.Conflicts = append(rest.Conflicts, c)
		}
	}
	if len(rest.Conflicts) > 0 {
		return object.Nil, nil, rest
	}
	w.Force = true
	return k.apply(live, intent, fields, w, r)
}

// setClientSide is the fields that client-side apply has set and that still have the same value.
func (k *Kind) setClientSide(live object.Value, version string) (Set, bool) {
	text := live.At("metadata", "annotations", LastApplied).Str()
	if text == "" {
		return Set{}, false
	}
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil || parsed.Value.At("apiVersion").Str() != version {
		return Set{}, false
	}
	kind := parsed.Value.At("kind").Str()
	if kind == "" || kind != live.At("kind").Str() && k.Type.Kind != schema.Any {
		return Set{}, false // it has another type, and says nothing of this one
	}
	last, err := parsed.Value.Untyped()
	if err != nil {
		return Set{}, false
	}
	fields, err := survey(last, k.Type, new(room))
	if err != nil {
		return Set{}, false
	}
	if _, err := survey(withoutManaged(live), k.Type, new(room)); err != nil {
		return Set{}, false
	}
	diff, err := compare(last, live, k.Type, new(room))
	if err != nil {
		return Set{}, false
	}
	return fields.minus(diff, touched|removed, false), true
}

// withLastApplied keeps the annotation up to date, where there is one, so that client-side apply can go on from here.
func withLastApplied(merged, intent object.Value) object.Value {
	annotations := merged.At("metadata", "annotations")
	if annotations.At(LastApplied).Str() == "" {
		return merged
	}
	applied := intent.WithoutAt("metadata", "annotations", LastApplied)
	if applied.At("metadata", "annotations").IsNull() {
		applied = applied.WithoutAt("metadata", "annotations")
	}
	text := string(object.AppendJSON(nil, applied)) + "\n"
	size := len(LastApplied) + len(text)
	for _, m := range annotations.Members() {
		if m.Key != LastApplied {
			size += len(m.Key) + m.Value.Len()
		}
	}
	if size > maxAnnotations {
		return merged.WithoutAt("metadata", "annotations", LastApplied)
	}
	return merged.WithAt(object.StringOf(text), "metadata", "annotations", LastApplied)
}
