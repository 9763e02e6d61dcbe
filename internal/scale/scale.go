// Package scale implements the subresource scale (URI-7): it reads and writes the number of replicas of an object as a
// Scale of autoscaling/v1, for every kind. A [Scaling] has the functions that read and write the numbers of one kind:
// package builtin has those of the built-in kinds, and package crd creates those of custom kinds.
package scale

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/merge"
	"plinth/object"
)

// Scaling is how objects of one kind are read and written as a Scale.
type Scaling struct {
	// Read returns the numbers in the Scale of an object. Base returns those in the Scale that a patch or an apply
	// changes; nil: those of Read.
	Read, Base func(obj object.Value) (Numbers, error)
	// Write sets the wanted number of replicas.
	Write func(obj object.Value, replicas int64) (object.Value, error)
	// Replicas has the path of the wanted number in each version of the kind, for its ownership.
	Replicas merge.Replicas
	// Columns and Cells are those of a Table of the Scale.
	Columns []engine.Column
	Cells   func(obj object.Value) []any
}

// Numbers are the members of a Scale: spec.replicas, status.replicas and status.selector.
type Numbers struct {
	Wanted, There int64
	Selector      string // of the Pods
}

// Subresource returns the subresource scale of the kind.
func (s Scaling) Subresource() *engine.Subresource {
	sub := &engine.Subresource{
		Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale",
		Verbs:  []string{"get", "patch", "update"},
		Schema: gotypes.Of[autoscalingv1.Scale], Model: "io.k8s.api.autoscaling.v1.Scale",
		Represent: represent(s.Read),
		Write: func(old, body object.Value) (object.Value, error) {
			return s.Write(old, body.At("spec", "replicas").Int())
		},
		Replicas: s.Replicas,
		Tables:   true, Columns: s.Columns, Cells: s.Cells,
	}
	if s.Base != nil {
		sub.Base = represent(s.Base)
	}
	return sub
}

// represent returns the function that converts an object to a Scale.
func represent(read func(obj object.Value) (Numbers, error)) func(obj object.Value) (object.Value, error) {
	return func(obj object.Value) (object.Value, error) {
		n, err := read(obj)
		if err != nil {
			return object.Nil, err
		}
		return of(obj.At("metadata"), n), nil
	}
}

// of returns a Scale with these numbers for an object with this metadata. As in the reference, spec.replicas is omitted
// if it is 0, and status.replicas never is.
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
