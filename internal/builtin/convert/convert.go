// Package convert turns the objects of the few built-in kinds that are served in several API versions from one version
// into the other: HorizontalPodAutoscaler (autoscaling/v1 and v2) and Event (core/v1 and events.k8s.io/v1).
//
// The functions are pure. They take an object as package schema has decoded it in the one version, defaults filled in,
// and give it as a decoded object of the other one: what the reference prints after it has gone through its internal
// type, with the empty structs and nulls that Go's encoding writes. metadata stays as it is, but for the annotations in
// which autoscaling/v1 keeps what its fields have no place for.
package convert

import "plinth/object"

// rename gives a member of one version its place in the other: under key From there, under key To here.
type rename struct{ from, to string }

// renamed lists the members of obj that the table names, under their new names; absent ones are left out.
func renamed(obj object.Value, table []rename) []object.Member {
	var members []object.Member
	for _, r := range table {
		if v, ok := obj.Get(r.from); ok {
			members = append(members, object.Member{Key: r.to, Value: v})
		}
	}
	return members
}
