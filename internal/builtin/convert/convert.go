// Package convert converts objects of the built-in kinds whose versions have different fields from one version to the
// other: HorizontalPodAutoscaler (autoscaling/v1 and v2), Event (core/v1 and events.k8s.io/v1) and
// PodCertificateRequest (certificates.k8s.io/v1 and v1beta1).
//
// The functions are pure. They take an object as package schema has decoded it in one version, with defaults, and
// return it as a decoded object of the other one, in the form that the reference prints after a conversion through its
// internal type, with the empty structs and nulls that Go's encoding writes. metadata is unchanged, except for the
// annotations in which autoscaling/v1 has what its fields cannot express.
package convert

import "plinth/object"

// rename maps the key of a member in one version to its key in the other.
type rename struct{ from, to string }

// renamed returns the members of obj that are in the table, under their new names.
func renamed(obj object.Value, table []rename) []object.Member {
	var members []object.Member
	for _, r := range table {
		if v, ok := obj.Get(r.from); ok {
			members = append(members, object.Member{Key: r.to, Value: v})
		}
	}
	return members
}
