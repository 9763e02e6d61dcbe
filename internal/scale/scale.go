// Package scale is the scale subresource (URI-7): the number of replicas of an object, shown and set as a Scale of
// autoscaling/v1, whatever the kind of the object. Where an object keeps its numbers is for its kind to say, in a
// Scaling: package builtin has those of the built-in kinds, package crd makes those of custom ones.
package scale

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/merge"
	"plinth/object"
)

// Scaling is where the objects of a kind keep what their Scale shows.
type Scaling struct {
	// Read is what the Scale of an object shows, and Base what a patch or an apply of it begins with; nil: what Read
	// gives.
	Read, Base func(obj object.Value) (Numbers, error)
	// Write sets the number of replicas that is wanted.
	Write func(obj object.Value, replicas int64) (object.Value, error)
	// Replicas is where each version of the kind has that number.
	Replicas merge.Replicas
	// Columns and Cells are those of a Table of the Scale.
	Columns []engine.Column
	Cells   func(obj object.Value) []any
}

// Numbers are what an object says of its replicas.
type Numbers struct {
	Wanted, There int64
	Selector      string // of their Pods, as text
}

// Subresource is the scale subresource of the kind.
func (s Scaling) Subresource() *engine.Subresource {
	sub := &engine.Subresource{
		Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale",
		Verbs:  []string{"get", "patch", "update"},
		Schema: gotypes.Of[autoscalingv1.Scale], Model: "io.k8s.api.autoscaling.v1.Scale",
		View: view(s.Read),
		Write: func(old, body object.Value) (object.Value, error) {
			return s.Write(old, body.At("spec", "replicas").Int())
		},
		Replicas: s.Replicas,
		Tables:   true, Columns: s.Columns, Cells: s.Cells,
	}
	if s.Base != nil {
		sub.Base = view(s.Base)
	}
	return sub
}

// view makes the Scale of an object.
func view(read func(obj object.Value) (Numbers, error)) func(obj object.Value) (object.Value, error) {
	return func(obj object.Value) (object.Value, error) {
		n, err := read(obj)
		if err != nil {
			return object.Nil, err
		}
		return of(obj.At("metadata"), n), nil
	}
}

// of is a Scale with these numbers, of an object with this metadata.
func of(metadata object.Value, n Numbers) object.Value {
	var meta []object.Member
	for _, key := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		if v, ok := metadata.Get(key); ok {
			meta = append(meta, object.Member{Key: key, Value: v})
		}
	}
	spec := object.MapOf()
	if n.Wanted != 0 {
		spec = object.Fields("replicas", object.IntOf(n.Wanted))
	}
	status := object.Fields("replicas", object.IntOf(n.There))
	if n.Selector != "" {
		status = status.With("selector", object.StringOf(n.Selector))
	}
	return object.Fields(
		"apiVersion", object.StringOf("autoscaling/v1"), "kind", object.StringOf("Scale"),
		"metadata", object.MapOf(meta...), "spec", spec, "status", status)
}
