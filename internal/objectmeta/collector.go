package objectmeta

import "plinth/object"

// OnlyCollectorFields says whether a write changes only metadata that the garbage collector changes. Who may write an
// object only with further rights, such as the rules of a role, does not need them for that; old is null for a new
// object. It matches IsOnlyMutatingGCFields in the reference.
func OnlyCollectorFields(obj, old object.Value) bool {
	if old.IsNull() {
		return false
	}
	without := func(v object.Value) object.Value {
		return v.With("metadata", v.At("metadata").Edit(nil, "ownerReferences", "finalizers", "selfLink", "managedFields"))
	}
	return object.Equal(without(obj), without(old))
}
