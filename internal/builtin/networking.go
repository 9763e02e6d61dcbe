package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
)

func networking(c Config) group {
	// In older releases the status of a ServiceCIDR is written with the rest of it, too.
	free, untouched := !c.Features.On(features.ServiceCIDRStatusFieldWiping), statusAlone
	if free {
		untouched = map[string]string{"": "", "status": statusAlone["status"]}
	}
	return group{"networking.k8s.io", []kind{
		{
			name: "ingressclasses", kind: "IngressClass",
			versions: []version{of[networkingv1.IngressClass, networkingv1.IngressClassList]()},
			cluster:  true,
			defaults: defaults.IngressClass, rules: validation.IngressClass,
			generation: spec, table: columns.IngressClasses,
		},
		{
			name: "ingresses", kind: "Ingress", short: "ing",
			versions: []version{of[networkingv1.Ingress, networkingv1.IngressList]()},
			rules:    validation.Ingress, warnings: warnings.Ingress,
			untouched: statusApart,
			status:    statusAndMeta, generation: spec, table: columns.Ingresses,
		},
		{
			name: "ipaddresses", kind: "IPAddress", short: "ip",
			versions: []version{
				of[networkingv1.IPAddress, networkingv1.IPAddressList](),
				of[networkingv1beta1.IPAddress, networkingv1beta1.IPAddressList](),
			},
			rules:   validation.IPAddress,
			cluster: true,
			naming:  address, table: columns.IPAddresses,
		},
		{
			name: "networkpolicies", kind: "NetworkPolicy", short: "netpol",
			defaults: defaults.NetworkPolicy, rules: validation.NetworkPolicy, warnings: warnings.NetworkPolicy,
			versions:   []version{of[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList]()},
			generation: spec, table: columns.NetworkPolicies,
		},
		{
			name: "servicecidrs", kind: "ServiceCIDR",
			versions: []version{
				of[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](),
				of[networkingv1beta1.ServiceCIDR, networkingv1beta1.ServiceCIDRList](),
			},
			cluster:   true,
			rules:     validation.ServiceCIDR,
			untouched: untouched,
			status:    statusOnly, freeStatus: free, table: columns.ServiceCIDRs,
		},
	}}
}
