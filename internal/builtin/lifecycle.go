package builtin

import (
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
)

// lifecycle is the group of evictions that are negotiated. The subresource of Pods that evicts one has a file of its
// own, and another kind of the same name.
func lifecycle() group {
	return group{"lifecycle.k8s.io", []kind{
		{
			name: "evictionrequests", kind: "EvictionRequest",
			gates: []features.Gate{features.EvictionRequestAPI},
			versions: []version{
				of[lifecyclev1alpha1.EvictionRequest, lifecyclev1alpha1.EvictionRequestList](),
			},
			rules: validation.EvictionRequest, naming: wholeSubdomain,
			untouched:   statusAlone,
			conditional: true, status: statusOnly, generation: spec, table: columns.EvictionRequests,
		},
		{
			name: "evictions", kind: "Eviction",
			gates:    []features.Gate{features.EvictionRequestAPI},
			versions: []version{of[lifecyclev1alpha1.Eviction, lifecyclev1alpha1.EvictionList]()},
			rules:    validation.Eviction, naming: wholeSubdomain,
			untouched:   statusAlone,
			conditional: true, status: statusOnly, generation: spec, table: columns.Evictions,
		},
	}}
}
