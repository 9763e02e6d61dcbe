package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
)

func networking() group {
	return group{"networking.k8s.io", "v1", []kind{
		{
			name: "ingressclasses", kind: "IngressClass", schema: gotypes.Of[networkingv1.IngressClass], cluster: true,
			generation: spec, table: columns.IngressClasses,
		},
		{
			name: "ingresses", kind: "Ingress", short: "ing", schema: gotypes.Of[networkingv1.Ingress],
			status: statusAndMeta, generation: spec, table: columns.Ingresses,
		},
		{
			name: "ipaddresses", kind: "IPAddress", short: "ip", schema: gotypes.Of[networkingv1.IPAddress],
			cluster: true,
			naming:  address, table: columns.IPAddresses,
		},
		{
			name: "networkpolicies", kind: "NetworkPolicy", short: "netpol",
			schema:     gotypes.Of[networkingv1.NetworkPolicy],
			generation: spec, table: columns.NetworkPolicies,
		},
		{
			name: "servicecidrs", kind: "ServiceCIDR", schema: gotypes.Of[networkingv1.ServiceCIDR], cluster: true,
			status: statusOnly, table: columns.ServiceCIDRs,
		},
	}}
}
