package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Propagation is what happens to the dependents of a deleted object (DEL-2). The delete itself changes no dependent: it
// adds a finalizer to the object that names the propagation for the garbage collector, so that it is done after a
// restart, too.
type Propagation string

const (
	// Background: the object is removed, and then the collector deletes its dependents. It needs no finalizer, since a
	// dependent whose owner no longer exists is found by its owner reference.
	Background Propagation = "Background"
	// Foreground: the dependents are deleted first. The finalizer foregroundDeletion keeps the object until those that
	// block its deletion are removed.
	Foreground Propagation = "Foreground"
	// Orphan: the dependents stay. The finalizer orphan keeps the object until none of them has an owner reference to
	// it.
	Orphan Propagation = "Orphan"
	// Unchanged leaves the finalizers of the object as they are.
	Unchanged Propagation = ""
)

// The finalizers of the garbage collector. An object has at most one of the two.
const (
	ForegroundFinalizer = metav1.FinalizerDeleteDependents
	OrphanFinalizer     = metav1.FinalizerOrphanDependents
)

// Asked is the propagation in the options of the delete; Unchanged if there is none.
func (o *DeleteOptions) Asked() Propagation {
	if o.OrphanDependents == nil {
		return Propagation(o.PropagationPolicy)
	}
	if *o.OrphanDependents {
		return Orphan
	}
	return Background
}

// ValidatePropagation returns the errors of propagationPolicy and orphanDependents; nil means not set. orphanDependents
// is the older option, and excludes the first (ValidateDeleteOptions in apimachinery).
func ValidatePropagation(policy *string, orphanDependents *bool) (errs field.ErrorList) {
	if policy == nil {
		return nil
	}
	path := field.NewPath("propagationPolicy")
	if orphanDependents != nil {
		errs = append(errs, field.Invalid(path, *policy, "orphanDependents and deletionPropagation cannot be both set"))
	}
	switch Propagation(*policy) {
	case Background, Foreground, Orphan:
		return errs
	}
	return append(errs, field.NotSupported(path, *policy, []string{string(Foreground), string(Background),
		string(Orphan), "nil"}))
}

// PropagationOr is the propagation of a delete: that in its options, else that of a finalizer which the object already
// has, else fallback. So a second delete without options keeps the propagation of the first one (shouldOrphanDependents
// and shouldDeleteDependents in the reference).
func PropagationOr(fallback Propagation, obj object.Value, o DeleteOptions) Propagation {
	if asked := o.Asked(); asked != Unchanged {
		return asked
	}
	for _, f := range finalizers(obj) {
		switch f.Str() {
		case OrphanFinalizer:
			return Orphan
		case ForegroundFinalizer:
			return Foreground
		}
	}
	return fallback
}

// propagation is the propagation of a delete of obj.
func (r *Resource) propagation(obj object.Value, o DeleteOptions) Propagation {
	if r.Propagation != nil {
		return r.Propagation(obj, o)
	}
	return PropagationOr(Background, obj, o)
}

// with gives an object the finalizer for the propagation, behind all others, and removes that of any other propagation.
//
//	with(obj) has at most one of orphan and foregroundDeletion, and the rest of its finalizers in their order
func (p Propagation) with(obj object.Value) object.Value {
	wanted := ""
	switch p {
	case Unchanged:
		return obj
	case Foreground:
		wanted = ForegroundFinalizer
	case Orphan:
		wanted = OrphanFinalizer
	}
	var others []object.Value
	has, hasOther := wanted == "", false
	for _, f := range finalizers(obj) {
		switch name := f.Str(); name {
		case wanted:
			has = true
		case ForegroundFinalizer, OrphanFinalizer:
			hasOther = true
		default:
			others = append(others, f)
		}
	}
	if has && !hasOther {
		return obj
	}
	if wanted != "" {
		others = append(others, object.StringOf(wanted))
	}
	if len(others) == 0 {
		return obj.WithoutAt("metadata", "finalizers")
	}
	return obj.WithAt(object.ListOf(others...), "metadata", "finalizers")
}
