package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

func (c *Config) services() kind {
	naming := label
	if !c.Features.On(features.RelaxedServiceNameValidation) {
		naming = oldLabel
	}
	return kind{
		name: "services", kind: "Service", short: "svc", categories: []string{"all"},
		defaults: defaults.Service, rules: validation.Service, warnings: warnings.Service,
		untouched:  statusApart,
		versions:   []version{of[corev1.Service, corev1.ServiceList]()},
		putCreates: true, naming: naming,
		status: statusAndMeta, onCreate: dropInternalPolicy, onUpdate: dropOfOtherType,
		fields: []selectable{
			text("spec.clusterIP"),
			text("spec.type"),
		},
		table: columns.Services, answersDeleted: true,
		more: []*engine.Subresource{proxied[corev1.ServiceProxyOptions]("ServiceProxyOptions")},
	}
}

// These functions decide which fields of a Service its type needs.

func serviceType(spec object.Value) string { return spec.At("type").Str() }

func hasClusterIP(spec object.Value) bool { return serviceType(spec) != "ExternalName" }

func hasNodePorts(spec object.Value) bool {
	t := serviceType(spec)
	return t == "NodePort" || t == "LoadBalancer"
}

func hasHealthPort(spec object.Value) bool {
	return serviceType(spec) == "LoadBalancer" && spec.At("externalTrafficPolicy").Str() == "Local"
}

func reachableFromOutside(spec object.Value) bool {
	return hasNodePorts(spec) || serviceType(spec) == "ClusterIP" && spec.At("externalIPs").Len() > 0
}

// dropOfOtherType drops fields that only the old type of a Service needs, if the client changes the type and leaves
// these fields unchanged (dropTypeDependentFields in the reference). It also empties the status of a load balancer if
// the Service is of another type. Package addresses sets the fields that the server fills in, before this.
func dropOfOtherType(obj, old object.Value) object.Value {
	spec := withoutOthers(obj.At("spec"), old.At("spec"))
	if serviceType(spec) != "LoadBalancer" {
		obj = obj.With("status", obj.At("status").With("loadBalancer", object.MapOf()))
	}
	return dropInternalPolicy(obj.With("spec", spec))
}

// dropInternalPolicy drops internalTrafficPolicy of an ExternalName Service. The reference stores it, but does not
// return it. A value that does not exist is kept, and validation refuses it.
func dropInternalPolicy(obj object.Value) object.Value {
	spec := obj.At("spec")
	if policy := spec.At("internalTrafficPolicy").Str(); hasClusterIP(spec) || policy != "Cluster" &&
		policy != "Local" {
		return obj
	}
	return obj.With("spec", spec.Without("internalTrafficPolicy"))
}

func withoutOthers(spec, before object.Value) object.Value {
	var drop []string
	same := func(key string) bool { return sameOrEmpty(spec.At(key), before.At(key)) }
	if hasClusterIP(before) && !hasClusterIP(spec) {
		if same("clusterIP") && same("clusterIPs") {
			drop = append(drop, "clusterIP", "clusterIPs")
		}
		for _, key := range []string{"ipFamilies", "ipFamilyPolicy"} {
			if same(key) {
				drop = append(drop, key)
			}
		}
	}
	if hasNodePorts(before) && !hasNodePorts(spec) && !newNodePorts(spec, before) {
		spec = withoutNodePorts(spec)
	}
	if hasHealthPort(before) && !hasHealthPort(spec) && same("healthCheckNodePort") {
		drop = append(drop, "healthCheckNodePort")
	}
	if serviceType(before) == "LoadBalancer" && serviceType(spec) != "LoadBalancer" {
		for _, key := range []string{"allocateLoadBalancerNodePorts", "loadBalancerClass"} {
			if same(key) {
				drop = append(drop, key)
			}
		}
	}
	if reachableFromOutside(before) && !reachableFromOutside(spec) && same("externalTrafficPolicy") {
		drop = append(drop, "externalTrafficPolicy")
	}
	return spec.Edit(nil, drop...)
}

func sameOrEmpty(a, b object.Value) bool {
	return object.Equal(a, b) || a.Len() == 0 && b.Len() == 0 && a.Int() == 0 && b.Int() == 0 && !a.Bool() && !b.Bool()
}

// newNodePorts says whether there is a node port that the old Service does not have.
func newNodePorts(spec, previous object.Value) bool {
	before := map[int64]bool{0: true}
	for _, p := range previous.At("ports").Items() {
		before[p.At("nodePort").Int()] = true
	}
	return slices.ContainsFunc(spec.At("ports").Items(),
		func(p object.Value) bool { return !before[p.At("nodePort").Int()] })
}

func withoutNodePorts(spec object.Value) object.Value {
	ports := slices.Clone(spec.At("ports").Items())
	for i, p := range ports {
		ports[i] = p.Without("nodePort")
	}
	if len(ports) == 0 {
		return spec
	}
	return spec.With("ports", object.ListOf(ports...))
}
