package builtin

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

func discovery() group {
	return group{"discovery.k8s.io", []kind{
		{
			name: "endpointslices", kind: "EndpointSlice",
			versions: []version{of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]()},
			defaults: defaults.EndpointSlice, rules: validation.EndpointSlice, warnings: warnings.EndpointSlice,
			onCreate:   func(obj object.Value) object.Value { return dropTopology(obj, object.Nil) },
			onUpdate:   dropTopology,
			gated:      []gated{below("", behind(features.PreferSameTrafficDistribution, "endpoints[].hints.forNodes"))},
			generation: sliceAndLabels,
			table:      columns.EndpointSlices,
		},
	}}
}

// sliceAndLabels is the generation of EndpointSlices: everything but the metadata, and the labels.
func sliceAndLabels(obj object.Value) object.Value {
	labels := obj.At("metadata", "labels")
	if labels.Len() == 0 {
		labels = object.Nil
	}
	return object.ListOf(obj.Without("metadata"), labels)
}

// dropTopology drops deprecatedTopology, which held the node's name in an older version. That name becomes the nodeName
// of the endpoint if the old object has it in this field, too.
func dropTopology(obj, old object.Value) object.Value {
	endpoints := obj.At("endpoints")
	if !old.IsNull() && object.Equal(endpoints, old.At("endpoints")) {
		return obj
	}
	const hostname = "kubernetes.io/hostname"
	for i, endpoint := range endpoints.Items() {
		topology := endpoint.At("deprecatedTopology")
		if topology.IsNull() {
			continue
		}
		node := topology.At(hostname)
		if endpoint.At("nodeName").IsNull() && node.Len() > 0 && hadNode(old, node) {
			endpoint = endpoint.With("nodeName", node)
		}
		endpoints = endpoints.WithItem(i, endpoint.Without("deprecatedTopology"))
		obj = obj.With("endpoints", endpoints)
	}
	return obj
}

func hadNode(old, node object.Value) bool {
	for _, endpoint := range old.At("endpoints").Items() {
		if object.Equal(endpoint.At("deprecatedTopology", "kubernetes.io/hostname"), node) {
			return true
		}
	}
	return false
}
