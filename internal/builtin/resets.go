package builtin

import (
	"slices"
	"strings"

	"plinth/internal/engine"
	"plinth/merge"
)

// untouched says of some types of a group what the writes to each endpoint of an object cannot touch (SSA-14): the
// paths are separated by spaces, and the endpoint "" is the main URL.
type untouched struct {
	group, resources string
	endpoints        map[string]string
}

var (
	// statusApart is what the older types have: metadata can be written through both endpoints.
	statusApart = map[string]string{"": "status", "status": "spec"}
	// statusAlone is what the newer ones have.
	statusAlone = map[string]string{"": "status", "status": "metadata spec"}
)

// untouchedFields lists the types with fields that a write cannot touch. Elsewhere, the scale of a type included, a
// write owns whatever it changes. That goes for the ephemeralcontainers and the resize of Pods, too. The reference
// means these two to own nothing but the containers' parts, but its storage does not hand that on to what tracks
// ownership: there, a write owns the labels that it sends and that are not changed. Ownership is the same here.
var untouchedFields = []untouched{
	{"", "nodes persistentvolumeclaims persistentvolumes replicationcontrollers resourcequotas services", statusApart},
	{"", "namespaces", map[string]string{"": "status", "status": "spec", "finalize": "status"}},
	{"", "pods", map[string]string{"": "status", "status": "spec metadata.deletionTimestamp metadata.ownerReferences"}},
	{"admissionregistration.k8s.io", "validatingadmissionpolicies", statusAlone},
	{"apiextensions.k8s.io", "customresourcedefinitions", statusApart},
	{"apps", "daemonsets replicasets statefulsets", statusApart},
	{"apps", "deployments", map[string]string{"": "status", "status": "spec metadata.labels"}},
	{"autoscaling", "horizontalpodautoscalers", statusApart},
	{"batch", "cronjobs jobs", statusApart},
	{"certificates.k8s.io", "certificatesigningrequests", map[string]string{
		"": "spec status", "status": "spec status.conditions", "approval": "spec status.certificate",
	}},
	{"certificates.k8s.io", "podcertificaterequests", statusAlone},
	{"flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations", statusAlone},
	{"networking.k8s.io", "ingresses", statusApart},
	{"networking.k8s.io", "servicecidrs", statusAlone},
	{"policy", "poddisruptionbudgets", statusApart},
	{"resource.k8s.io", "devicetaintrules resourceclaims", statusAlone},
	{"storage.k8s.io", "csinodes volumeattachments", statusAlone},
	{"storagemigration.k8s.io", "storageversionmigrations", statusAlone},
}

// resets is, by API version, what a write to this endpoint of a type cannot touch, and so does not own (SSA-14); "" as
// the subresource is the main URL. Each version of a kind has all of them, as a write changes who owns what in the
// others, too.
func resets(r *engine.Resource, subresource string) map[string]merge.Set {
	i := slices.IndexFunc(untouchedFields, func(u untouched) bool {
		return u.group == r.Group && slices.Contains(strings.Fields(u.resources), r.Name)
	})
	if i < 0 {
		return nil
	}
	paths, known := untouchedFields[i].endpoints[subresource]
	if !known {
		return nil
	}
	sets := map[string]merge.Set{}
	for _, version := range r.Stored.Versions {
		sets[version.APIVersion] = merge.Fields(strings.Fields(paths)...)
	}
	return sets
}
