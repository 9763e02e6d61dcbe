package crd

import (
	"fmt"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// BuiltIn is the type that a definition describes, of one version, for a kind that is a part of the program: it has all
// that a custom type has, and no object defines it, so nobody can delete it, and its writes depend on nothing. The
// caller adds the behaviours that a definition cannot describe. metadata is as for New.
func BuiltIn(definition object.Value, metadata func() *schema.Type) *engine.Resource {
	established := object.Fields("type", object.StringOf("Established"), "status", object.StringOf("True"))
	written := definition.With("status", object.Fields("acceptedNames", definition.At("spec", "names"), "conditions",
		object.ListOf(established)))
	d := New(metadata)
	read := d.read(store.NewVersion(store.Key{Resource: Path, Name: definition.At("metadata", "name").Str()}, 0,
		object.AppendObject(nil, written), &store.Sidecar{}))
	versions, stored := d.kind(read, originOf(read))
	if len(versions) != 1 || versions[0] != stored {
		panic(fmt.Sprintf("crd: %s has %d versions that are served and stored, and not one", read.version.Key,
			len(versions)))
	}
	k := stored.Stored
	k.Definition, k.DefinitionUID, k.Life, k.Origin = store.Key{}, "", nil, nil
	return stored
}
