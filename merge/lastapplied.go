package merge

import (
	"errors"

	"plinth/object"
	"plinth/schema"
)

// kubectl is the manager for which objects of client-side apply are migrated (SSA-13). The reference does it for no
// other.
const kubectl = "kubectl"

// LastApplied is the annotation in which client-side apply stores the manifest that it applied.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// maxAnnotations is how many bytes the annotations of an object may have.
const maxAnnotations = 256 << 10

// applyAfterClientSide repeats a failed apply of kubectl. Client-side apply owned its fields by updates, under another
// manager, so that the first server-side apply of the same user would conflict with all of them. Conflicts about fields
// that still have the value in the annotation are therefore ignored:
//
//	conflicts ∩ (fields(annotation) ∖ diff(annotation, live)) = conflicts  ⇒  the apply is forced
//
// Otherwise the remaining conflicts are the error. failed is the error of the first attempt, and is returned unchanged
// if it is not a conflict, or if there is no usable annotation.
//
// Say the annotation has replicas 1 and image a. If live has the same, both were set by kubectl, and the user may take
// them over without force. If another client has set replicas to 5 since, .spec.replicas is in diff(annotation, live),
// and the conflict about it stays. Ignoring all conflicts with the manager "kubectl-client-side-apply" instead would be
// wrong: an update of any other client may use this name, and the annotation is what records the user's intent.
//
// The cost is that of two applies and two walks over the object, but only once: the forced apply takes the fields over.
func (k *Kind) applyAfterClientSide(live, intent object.Value, fields Set, w Writer, r *arena,
	failed error) (object.Value, []*entry, error) {
	var conflicts *ConflictError
	if !errors.As(failed, &conflicts) {
		return object.Nil, nil, failed
	}
	set, ok := k.setClientSide(live, w.APIVersion)
	if !ok {
		return object.Nil, nil, failed
	}
	if rest := conflicts.without(set); rest != nil {
		return object.Nil, nil, rest
	}
	w.Force = true
	return k.apply(live, intent, fields, w, r)
}

// setClientSide is fields(annotation) ∖ diff(annotation, live): the fields that client-side apply set and that have not
// changed since. ok is false if there is no annotation, if it is not of this kind and version, or if it or live does
// not match the schema. The annotation is text that any client may write, and is not trusted.
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
		return Set{}, false // the annotation has been copied from an object of another kind
	}
	last, err := parsed.Value.Untyped()
	if err != nil {
		return Set{}, false
	}
	fields, err := checkedFieldsOf(last, k.Type, new(arena))
	if err != nil {
		return Set{}, false
	}
	if _, err := checkedFieldsOf(withoutManaged(live), k.Type, new(arena)); err != nil {
		return Set{}, false
	}
	diff, err := compare(last, live, k.Type, new(arena))
	if err != nil {
		return Set{}, false
	}
	return fields.minus(diff, touched|removed, false), true
}

// withLastApplied updates the annotation if there is one, so that a user may return to client-side apply. That removes
// the fields which the annotation has and the new manifest does not have: with an old annotation, a field that
// server-side apply has added would never be removed. The annotation is dropped if the annotations would otherwise be
// too long to be valid.
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
