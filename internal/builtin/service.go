package builtin

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/object"
)

func services() kind {
	return kind{
		name: "services", kind: "Service", short: "svc", categories: []string{"all"}, schema: gotypes.Of[corev1.Service],
		putCreates: true, naming: label,
		status: statusAndMeta, onCreate: newService, onUpdate: keepAllocated,
		fields: []selectable{
			text("spec.clusterIP"),
			text("spec.type"),
		},
		table: columns.Services, answersDeleted: true,
	}
}

// The questions that decide which fields of a Service belong to its type.

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

// newService settles the addresses of a new Service. No address is allocated: nothing here routes to one.
func newService(obj object.Value) object.Value {
	obj = pluralAddress(obj)
	return obj.With("spec", families(obj.At("spec"), object.Nil))
}

// pluralAddress fills in clusterIPs for clients that know only clusterIP.
func pluralAddress(obj object.Value) object.Value {
	spec := obj.At("spec")
	if ip := spec.At("clusterIP"); ip.Len() > 0 && spec.At("clusterIPs").Len() == 0 {
		return obj.WithAt(object.ListOf(ip), "spec", "clusterIPs")
	}
	return obj
}

// keepAllocated keeps addresses and ports that a client leaves out of an update, and drops those that a client leaves
// alone while it changes the type to one that has none.
func keepAllocated(obj, old object.Value) object.Value {
	was := old.At("spec")
	spec := dropOfOtherType(obj.At("spec"), was)
	spec = families(pluralAddressUpdate(keepPorts(keepAddress(spec, was), was), was), was)
	if serviceType(spec) != "LoadBalancer" {
		obj = obj.With("status", obj.At("status").With("loadBalancer", object.MapOf()))
	}
	return obj.With("spec", spec)
}

// dropOfOtherType drops what belongs to the old type only.
func dropOfOtherType(spec, was object.Value) object.Value {
	var drop []string
	same := func(key string) bool { return sameOrEmpty(spec.At(key), was.At(key)) }
	if hasClusterIP(was) && !hasClusterIP(spec) {
		if same("clusterIP") && same("clusterIPs") {
			drop = append(drop, "clusterIP", "clusterIPs")
		}
		for _, key := range []string{"ipFamilies", "ipFamilyPolicy"} {
			if same(key) {
				drop = append(drop, key)
			}
		}
	}
	if hasNodePorts(was) && !hasNodePorts(spec) && sameNodePorts(spec, was) {
		spec = withoutNodePorts(spec)
	}
	if hasHealthPort(was) && !hasHealthPort(spec) && same("healthCheckNodePort") {
		drop = append(drop, "healthCheckNodePort")
	}
	if serviceType(was) == "LoadBalancer" && serviceType(spec) != "LoadBalancer" {
		for _, key := range []string{"allocateLoadBalancerNodePorts", "loadBalancerClass"} {
			if same(key) {
				drop = append(drop, key)
			}
		}
	}
	if reachableFromOutside(was) && !reachableFromOutside(spec) && same("externalTrafficPolicy") {
		drop = append(drop, "externalTrafficPolicy")
	}
	return spec.Edit(nil, drop...)
}

func sameOrEmpty(a, b object.Value) bool {
	return object.Equal(a, b) || a.Len() == 0 && b.Len() == 0 && a.Int() == 0 && b.Int() == 0 && !a.Bool() && !b.Bool()
}

// nodePorts lists the node ports in use.
func nodePorts(spec object.Value) map[int64]bool {
	used := map[int64]bool{}
	for _, p := range spec.At("ports").Items() {
		if n := p.At("nodePort").Int(); n != 0 {
			used[n] = true
		}
	}
	return used
}

func sameNodePorts(a, b object.Value) bool {
	left, right := nodePorts(a), nodePorts(b)
	for n := range left {
		if !right[n] {
			return false
		}
	}
	return len(left) == len(right)
}

func withoutNodePorts(spec object.Value) object.Value {
	ports := spec.At("ports")
	for i, p := range ports.Items() {
		ports = ports.WithItem(i, p.Without("nodePort"))
	}
	if ports.Len() == 0 {
		return spec
	}
	return spec.With("ports", ports)
}

func keepAddress(spec, was object.Value) object.Value {
	if !hasClusterIP(was) || !hasClusterIP(spec) {
		return spec
	}
	if spec.At("clusterIP").Len() == 0 {
		spec = keep(spec, was, "clusterIP")
	}
	if spec.At("clusterIPs").Len() == 0 && was.At("clusterIPs").Len() > 0 {
		spec = keep(spec, was, "clusterIPs")
	}
	return spec
}

// families fills in the IP families of a Service, as a cluster without IPv6 does. A Service without a selector and an
// address says nothing of where it leads to: it may have both.
func families(spec, was object.Value) object.Value {
	if !hasClusterIP(spec) {
		return spec
	}
	nowhere := spec.At("clusterIP").Str() == corev1.ClusterIPNone && spec.At("selector").Len() == 0
	policy := spec.At("ipFamilyPolicy")
	switch {
	case !policy.IsNull():
	case !was.At("ipFamilyPolicy").IsNull():
		policy = was.At("ipFamilyPolicy")
	case nowhere:
		policy = object.StringOf(string(corev1.IPFamilyPolicyRequireDualStack))
	default:
		policy = object.StringOf(string(corev1.IPFamilyPolicySingleStack))
	}
	list := spec.At("ipFamilies").Items()
	for i, ip := range spec.At("clusterIPs").Items() {
		if ip.Str() != corev1.ClusterIPNone && i >= len(list) {
			list = append(list[:len(list):len(list)], familyOf(ip.Str()))
		}
	}
	if len(list) == 0 {
		list = []object.Value{ipv4}
	}
	if len(list) == 1 && nowhere && policy.Str() != string(corev1.IPFamilyPolicySingleStack) {
		other := ipv6
		if list[0].Str() == ipv6.Str() {
			other = ipv4
		}
		list = []object.Value{list[0], other}
	}
	return spec.Edit([]object.Member{{Key: "ipFamilies", Value: object.ListOf(list...)}, {Key: "ipFamilyPolicy", Value: policy}})
}

var (
	ipv4 = object.StringOf(string(corev1.IPv4Protocol))
	ipv6 = object.StringOf(string(corev1.IPv6Protocol))
)

func familyOf(ip string) object.Value {
	if strings.Contains(ip, ":") {
		return ipv6
	}
	return ipv4
}

// keepPorts gives ports without a node port the one that the port of the same name had, if it is free.
func keepPorts(spec, was object.Value) object.Value {
	if hasNodePorts(was) && hasNodePorts(spec) {
		before, now := nodePorts(was), nodePorts(spec)
		byName := map[string]int64{}
		for _, p := range was.At("ports").Items() {
			byName[p.At("name").Str()] = p.At("nodePort").Int()
		}
		ports := spec.At("ports")
		for i, p := range ports.Items() {
			n := byName[p.At("name").Str()]
			if p.At("nodePort").Int() == 0 && n != 0 && !(before[n] && now[n]) {
				ports = ports.WithItem(i, p.With("nodePort", object.IntOf(n)))
				spec = spec.With("ports", ports)
			}
		}
	}
	if hasHealthPort(was) && hasHealthPort(spec) && spec.At("healthCheckNodePort").Int() == 0 {
		spec = keep(spec, was, "healthCheckNodePort")
	}
	return spec
}

// pluralAddressUpdate keeps clusterIPs in step with clusterIP for clients that know only that.
func pluralAddressUpdate(spec, was object.Value) object.Value {
	ip, oldIP := spec.At("clusterIP"), was.At("clusterIP")
	if sameOrEmpty(ip, oldIP) || !sameOrEmpty(spec.At("clusterIPs"), was.At("clusterIPs")) {
		return spec
	}
	if ip.Len() == 0 {
		return spec.Without("clusterIPs")
	}
	return spec.With("clusterIPs", object.ListOf(ip))
}
