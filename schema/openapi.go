package schema

// Unmarked is the type without what a field has said of how it merges there: the one that all fields of its Go type
// share. OpenAPI describes that one under the type's name, and tells of the rest with the field.
func (t *Type) Unmarked() *Type {
	if t.unmarked != nil {
		return t.unmarked
	}
	return t
}
