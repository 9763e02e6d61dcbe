package admission

import (
	"context"
	"iter"
	"maps"

	"plinth/internal/admission/hooks"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// defaults is a view of the objects of a type that are marked as the default one; chosen is the one that counts, null
// if there is none. A create looks it up instead of reading all objects of the type.
type defaults struct {
	marked map[string]object.Value
	chosen object.Value
}

// defaultOf returns a function that returns the default object of a type for a request; null: there is none. If an
// object of the type cannot be read, the default is not known, and the request is refused. marked says whether an
// object is marked as the default, and precedes which of two counts.
func (o *objects) defaultOf(k kindOf, marked func(obj object.Value) bool,
	precedes func(a, b object.Value) bool) func(ctx context.Context, a *engine.Attributes) (object.Value, error) {
	r := o.resource(k)
	if r == nil {
		return func(context.Context, *engine.Attributes) (object.Value, error) { return object.Nil, nil }
	}
	all := view.New(o.store.Collection(r.Stored.Path), func(before *defaults, changes iter.Seq[view.Change]) *defaults {
		next := &defaults{marked: map[string]object.Value{}}
		if before != nil {
			maps.Copy(next.marked, before.marked)
		}
		for change := range changes {
			delete(next.marked, change.Name)
			if obj := markedObject(change.Version, marked); !obj.IsNull() {
				next.marked[change.Name] = obj
			}
		}
		for _, obj := range next.marked {
			if next.chosen.IsNull() || precedes(obj, next.chosen) {
				next.chosen = obj
			}
		}
		return next
	})
	return func(ctx context.Context, a *engine.Attributes) (object.Value, error) {
		known, err := all.Now()
		if err != nil {
			if known, err = hooks.Await(ctx, a, all.Now); err != nil {
				return object.Nil, err
			}
		}
		return known.chosen, nil
	}
}

// markedObject is the object of a version if it is marked; else null, also for one that cannot be read.
func markedObject(v *store.Version, marked func(obj object.Value) bool) object.Value {
	if v == nil {
		return object.Nil
	}
	if obj, err := engine.ObjectOf(v); err == nil && marked(obj) {
		return obj
	}
	return object.Nil
}

// annotated says whether one of these annotations of an object is "true".
func annotated(keys ...string) func(obj object.Value) bool {
	return func(obj object.Value) bool {
		for _, key := range keys {
			if obj.At("metadata", "annotations", key).Str() == "true" {
				return true
			}
		}
		return false
	}
}

// newest says whether a is newer than b; of two that are equally old, the first name precedes.
func newest(a, b object.Value) bool {
	x, y := a.At("metadata", "creationTimestamp").Str(), b.At("metadata", "creationTimestamp").Str()
	if x != y {
		return x > y // RFC 3339 in UTC
	}
	return a.At("metadata", "name").Str() < b.At("metadata", "name").Str()
}
