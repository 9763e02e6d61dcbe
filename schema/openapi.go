package schema

// Unmarked is the type without what a field has said of how it merges there: the one that all fields of its Go type
// share (batch.withMarkers). OpenAPI describes that one under the type's name, and the rest with the field: the
// claimRef of a PersistentVolume is a reference to ObjectReference, with x-kubernetes-map-type: granular beside it.
func (t *Type) Unmarked() *Type {
	if t.unmarked != nil {
		return t.unmarked
	}
	return t
}
