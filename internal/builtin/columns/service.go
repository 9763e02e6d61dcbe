package columns

import (
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"plinth/object"
)

// Services, and what leads to them and behind them.
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

	EndpointSlices = of(name,
		str("AddressType", doc[discoveryv1.EndpointSlice]("addressType"), text("addressType")),
		str("Ports", doc[discoveryv1.EndpointSlice]("ports"), slicePorts),
		str("Endpoints", doc[discoveryv1.EndpointSlice]("endpoints"), sliceAddresses),
		age,
	)

	Ingresses = of(name,
		str("Class", "The name of the IngressClass resource that should be used for additional configuration", presentOr(none, "spec", "ingressClassName")),
		str("Hosts", "Hosts that incoming requests are matched against before the ingress rule", ingressHosts),
		str("Address", "Address is a list containing ingress points for the load-balancer", func(obj object.Value) any {
			return balancers(obj)
		}),
		str("Ports", "Ports of TLS configurations that open", func(obj object.Value) any {
			if obj.At("spec", "tls").Len() > 0 {
				return "80, 443"
			}
			return "80"
		}),
		age,
	)

	IngressClasses = of(
		isName(str("Name", name.Description, func(obj object.Value) any {
			shown := obj.At("metadata", "name").Str()
			if obj.At("metadata", "annotations", networkingv1.AnnotationIsDefaultIngressClass).Str() == "true" {
				shown += " (default)"
			}
			return shown
		})),
		str("Controller", "Controller that is responsible for handling this class", text("spec", "controller")),
		str("Parameters", "A reference to a resource with additional parameters", classParameters),
		age,
	)

	// IPAddresses have an age in their rows, as in the reference, and no column for it.
	IPAddresses = withoutLast(of(name, str("ParentRef", doc[networkingv1.IPAddressSpec]("parentRef"), parentRef), age))

	NetworkPolicies = of(name, str("Pod-Selector", doc[networkingv1.NetworkPolicySpec]("podSelector"), selector("spec", "podSelector")), age)

	ServiceCIDRs = of(name, str("CIDRs", doc[networkingv1.ServiceCIDRSpec]("cidrs"), joined("spec", "cidrs")), age)
)

// withoutLast is a table that does not tell of its last column.
func withoutLast(t Table) Table {
	t.Columns = t.Columns[:len(t.Columns)-1]
	return t
}

// presentOr is the text at the end of a path, even an empty one, or something else where there is none.
func presentOr(otherwise string, path ...string) cell {
	return func(obj object.Value) any {
		if v := obj.At(path...); !v.IsNull() {
			return v.Str()
		}
		return otherwise
	}
}

// balancers are the addresses of load balancers.
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

// mostShown is how many items of a long list are shown.
const mostShown = 3

// endpoints are the first addresses, with each of their ports.
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

func slicePorts(obj object.Value) any {
	var first []string
	ports := obj.At("ports").Items()
	for _, p := range ports[:min(mostShown, len(ports))] {
		port, name := p.At("port"), p.At("name")
		switch {
		case !port.IsNull():
			first = append(first, itoa(port.Int()))
		case !name.IsNull():
			first = append(first, name.Str())
		default:
			first = append(first, "*")
		}
	}
	return or(more(first, mostShown, len(ports)), unset)
}

func sliceAddresses(obj object.Value) any {
	var first []string
	all := 0
	for _, e := range obj.At("endpoints").Items() {
		for _, a := range e.At("addresses").Items() {
			if all++; len(first) < mostShown {
				first = append(first, a.Str())
			}
		}
	}
	return or(more(first, mostShown, all), unset)
}

// ingressHosts are the hosts of the first rules that have one.
func ingressHosts(obj object.Value) any {
	var hosts []string
	rules := obj.At("spec", "rules").Items()
	for _, r := range rules {
		if len(hosts) == mostShown {
			return more(hosts, mostShown, len(rules))
		}
		if host := r.At("host").Str(); host != "" {
			hosts = append(hosts, host)
		}
	}
	return or(strings.Join(hosts, ","), "*")
}

func classParameters(obj object.Value) any {
	p := obj.At("spec", "parameters")
	if p.IsNull() {
		return none
	}
	kind := p.At("kind").Str()
	if group := p.At("apiGroup"); !group.IsNull() {
		kind += "." + group.Str()
	}
	return kind + "/" + p.At("name").Str()
}

func parentRef(obj object.Value) any {
	p := obj.At("spec", "parentRef")
	if p.IsNull() {
		return none
	}
	ref := p.At("resource").Str()
	if group := p.At("group").Str(); group != "" {
		ref += "." + group
	}
	ref = strings.ToLower(ref)
	if namespace := p.At("namespace").Str(); namespace != "" {
		ref += "/" + namespace
	}
	return ref + "/" + p.At("name").Str()
}
