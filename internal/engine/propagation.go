package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Propagation is what happens to the dependents of a deleted object (DEL-2). The delete itself touches no dependent:
// it leaves a finalizer at the object by which the garbage collector knows what to do, so that it is done after a
// restart, too.
type Propagation string

const (
	// Background: the object is removed, and the collector deletes its dependents then. It needs no finalizer, since a
	// dependent whose owner is gone is found by its owner reference.
	Background Propagation = "Background"
	// Foreground: the dependents are deleted first. The finalizer foregroundDeletion keeps the object until those that
	// block its deletion are gone.
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

// Asked is the propagation that the client asked for; Unchanged if it asked for none.
func (o *DeleteOptions) Asked() Propagation {
	if o.OrphanDependents == nil {
		return Propagation(o.PropagationPolicy)
	}
	if *o.OrphanDependents {
		return Orphan
	}
	return Background
}

// ValidatePropagation returns the errors of propagationPolicy and orphanDependents; nil means not set. The second one
// is what clients sent before there were policies, and excludes the first (ValidateDeleteOptions in apimachinery).
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

// PropagationOr is the propagation of a delete: what the client asked for, else that of a finalizer which the object
// has already, else fallback. So a second delete without options does not take back what the first one asked for
// (shouldOrphanDependents and shouldDeleteDependents in the reference).
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

// with gives an object the finalizer by which the garbage collector knows the propagation, behind all others, and
// removes the other one.
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
