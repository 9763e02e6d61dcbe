package schema

// Unmarked is the type without the markers of a field, which all fields of its Go type share (batch.withMarkers).
// OpenAPI describes that one under the type's name, and the markers with the field: the claimRef of a PersistentVolume
// is a reference to ObjectReference, with x-kubernetes-map-type: granular beside it.
func (t *Type) Unmarked() *Type {
	if t.unmarked != nil {
		return t.unmarked
	}
	return t
}
