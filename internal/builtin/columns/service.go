package columns

import (
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"plinth/object"
)

// Services and Endpoints, of the core group.
var (
	Services = of(name,
		str("Type", doc[corev1.ServiceSpec]("type"), text("spec", "type")),
		str("Cluster-IP", doc[corev1.ServiceSpec]("clusterIP"), func(obj object.Value) any {
			if ips := obj.At("spec", "clusterIPs").Items(); len(ips) > 0 {
				return ips[0].Str()
			}
			return none
		}),
		str("External-IP", doc[corev1.ServiceSpec]("externalIPs"), externalIP),
		str("Port(s)", doc[corev1.ServiceSpec]("ports"), servicePorts),
		age,
		wide(str("Selector", doc[corev1.ServiceSpec]("selector"), labels("spec", "selector"))),
	)

	Endpoints = of(name, str("Endpoints", doc[corev1.Endpoints]("subsets"), endpoints), age)
)

// balancers prints the addresses of load balancers.
func balancers(obj object.Value) string {
	addresses := sets.New[string]()
	for _, i := range obj.At("status", "loadBalancer", "ingress").Items() {
		if address := or(i.At("ip").Str(), i.At("hostname").Str()); address != "" {
			addresses.Insert(address)
		}
	}
	return strings.Join(sets.List(addresses), ",")
}

func externalIP(obj object.Value) any {
	ips := strings.Join(list(obj.At("spec", "externalIPs")), ",")
	switch obj.At("spec", "type").Str() {
	case "ClusterIP", "NodePort":
		return or(ips, none)
	case "LoadBalancer":
		balanced := balancers(obj)
		if balanced != "" && ips != "" {
			return balanced + "," + ips
		}
		return or(balanced+ips, "<pending>")
	case "ExternalName":
		return obj.At("spec", "externalName").Str()
	}
	return unknown
}

func servicePorts(obj object.Value) any {
	var ports []string
	for _, p := range obj.At("spec", "ports").Items() {
		port := itoa(p.At("port").Int())
		if node := p.At("nodePort").Int(); node > 0 {
			port += ":" + itoa(node)
		}
		ports = append(ports, port+"/"+p.At("protocol").Str())
	}
	return or(strings.Join(ports, ","), none)
}

// endpoints prints the first addresses, with each of their ports.
func endpoints(obj object.Value) any {
	subsets := obj.At("subsets").Items()
	if len(subsets) == 0 {
		return none
	}
	var first []string
	all := 0
	for _, s := range subsets {
		ports := s.At("ports").Items()
		if len(ports) == 0 { // headless Services need none
			ports = []object.Value{object.Nil}
		}
		for _, p := range ports {
			for _, a := range s.At("addresses").Items() {
				if all++; len(first) == mostShown {
					continue
				}
				address := a.At("ip").Str()
				if !p.IsNull() {
					address = net.JoinHostPort(address, itoa(p.At("port").Int()))
				}
				first = append(first, address)
			}
		}
	}
	return more(first, mostShown, all)
}
