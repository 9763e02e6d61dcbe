package builtin

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/core/event"
	registrynamespace "k8s.io/kubernetes/pkg/registry/core/namespace"
	registrynode "k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"

	"plinth/internal/builtin"
	"plinth/internal/store"
	"plinth/object"
)

// attributes are upstream's functions that return the selectable labels and fields of an object.
var attributes = map[string]func(runtime.Object) (labels.Set, fields.Set, error){
	"Pod": pod.GetAttrs, "Node": registrynode.GetAttrs, "Namespace": registrynamespace.GetAttrs,
	"ReplicationController": replicationcontroller.GetAttrs, "Service": service.GetAttrs, "Secret": secret.GetAttrs,
	"Event": event.GetAttrs, "Job": job.GetAttrs, "CertificateSigningRequest": certificates.GetAttrs,
	"ResourceSlice": resourceslice.GetAttrs,
}

// withoutAttributes have selectable fields, and upstream does not export the function.
var withoutAttributes = []string{"ClusterTrustBundle", "PodCertificateRequest"}

// onlyUpstream are names that upstream accepts and Plinth does not: an alias that clients before version 1 sent.
var onlyUpstream = []string{"spec.host"}

// SPEC: LIST-7
func TestSelectableNames(t *testing.T) {
	names := []string{"spec.foo", "metadata.foo", "name", "spec.host", "status.replicas", "status.podIPs"}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		if r.Fields != nil {
			for _, p := range r.Fields(object.Nil) {
				names = append(names, p.Name)
			}
		}
	}
	each(t, func(t *testing.T, k kindUnderTest) {
		var ours []string
		if k.resource.Fields != nil {
			for _, p := range k.resource.Fields(object.Nil) {
				ours = append(ours, p.Name)
			}
		}
		if !slices.IsSorted(ours) {
			t.Errorf("%v is not sorted", ours)
		}
		for _, name := range names {
			_, _, err := legacyscheme.Scheme.ConvertFieldLabel(k.gvk, name, "x")
			if known := slices.Contains(ours, name); known != (err == nil) && !slices.Contains(onlyUpstream, name) {
				t.Errorf("%s: known here: %v; upstream: %v", name, known, err)
			}
		}
	})
}

// SPEC: LIST-7
func TestSelectableValues(t *testing.T) {
	each(t, func(t *testing.T, k kindUnderTest) {
		if k.resource.Fields == nil {
			return
		}
		attributes := attributes[k.gvk.Kind]
		if attributes == nil {
			if !slices.Contains(withoutAttributes, k.gvk.Kind) {
				t.Error("nobody says what upstream selects by")
			}
			return
		}
		compared := 0
		defer func() { k.enough(t, compared) }()
		for round := range *objects {
			p, ok := k.make(t, k.mutator(round).variant(k.vector))
			if !ok {
				continue
			}
			if p.theirs, p.ours, ok = stored(t, k.gvk, p.theirs); !ok {
				continue
			}
			_, set, err := attributes(p.theirs)
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range k.resource.Fields(p.ours) {
				label, _, err := legacyscheme.Scheme.ConvertFieldLabel(k.gvk, pair.Name, "")
				if err != nil {
					t.Fatal(err)
				}
				if pair.Value != set.Get(label) {
					t.Fatalf("round %d: %s is %q, want %q", round, pair.Name, pair.Value, set.Get(label))
				}
			}
			compared++
			for name := range set { // the fields by which upstream can select
				ours := slices.ContainsFunc(k.resource.Fields(p.ours), func(f store.Pair) bool { return f.Name == name })
				_, _, err := legacyscheme.Scheme.ConvertFieldLabel(k.gvk, name, "")
				if !ours && err == nil && name != "metadata.name" && name != "metadata.namespace" {
					t.Fatalf("%s can be selected upstream, and not here", name)
				}
			}
		}
	})
}
