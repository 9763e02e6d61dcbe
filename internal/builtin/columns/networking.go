package columns

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"plinth/object"
)

// networking.k8s.io
var (
	Ingresses = of(name,
		str("Class", "The name of the IngressClass resource that should be used for additional configuration",
			presentOr(none, "spec", "ingressClassName")),
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

	NetworkPolicies = of(name, str("Pod-Selector", doc[networkingv1.NetworkPolicySpec]("podSelector"),
		selector("spec", "podSelector")), age)

	ServiceCIDRs = of(name, str("CIDRs", doc[networkingv1.ServiceCIDRSpec]("cidrs"), joined("spec", "cidrs")), age)
)

// ingressHosts prints the hosts of the rules, up to mostShown; * if no rule has a host.
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
