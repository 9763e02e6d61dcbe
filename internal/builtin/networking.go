package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
)

func networking() group {
	return group{"networking.k8s.io", "v1", []kind{
		{
			name: "ingressclasses", kind: "IngressClass", schema: gotypes.Of[networkingv1.IngressClass],
			list: gotypes.Of[networkingv1.IngressClassList], cluster: true,
			defaults: defaults.IngressClass, rules: validation.IngressClass,
			generation: spec, table: columns.IngressClasses,
		},
		{
			name: "ingresses", kind: "Ingress", short: "ing", schema: gotypes.Of[networkingv1.Ingress],
			list:  gotypes.Of[networkingv1.IngressList],
			rules: validation.Ingress, warnings: warnings.Ingress,
			untouched: statusApart,
			status:    statusAndMeta, generation: spec, table: columns.Ingresses,
		},
		{
			name: "ipaddresses", kind: "IPAddress", short: "ip", schema: gotypes.Of[networkingv1.IPAddress],
			list:    gotypes.Of[networkingv1.IPAddressList],
			rules:   validation.IPAddress,
			cluster: true,
			naming:  address, table: columns.IPAddresses,
		},
		{
			name: "networkpolicies", kind: "NetworkPolicy", short: "netpol",
			defaults: defaults.NetworkPolicy, rules: validation.NetworkPolicy, warnings: warnings.NetworkPolicy,
			schema: gotypes.Of[networkingv1.NetworkPolicy], list: gotypes.Of[networkingv1.NetworkPolicyList],
			generation: spec, table: columns.NetworkPolicies,
		},
		{
			name: "servicecidrs", kind: "ServiceCIDR", schema: gotypes.Of[networkingv1.ServiceCIDR],
			list: gotypes.Of[networkingv1.ServiceCIDRList], cluster: true,
			rules:     validation.ServiceCIDR,
			untouched: statusAlone,
			status:    statusOnly, table: columns.ServiceCIDRs,
		},
	}}
}
