package warnings

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"plinth/object"
)

func service(obj object.Value) (warnings []string) {
	spec := obj.At("spec")
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	each := func(key string, rule func(path, value string) []string) {
		for i, v := range spec.At(key).Items() {
			warnings = append(warnings, rule(fmt.Sprintf("spec.%s[%d]", key, i), v.Str())...)
		}
	}
	if annotated(obj.At("metadata"), corev1.DeprecatedAnnotationTopologyAwareHints) {
		warn("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints,
			corev1.AnnotationTopologyMode)
	}
	typ, clusterIP := spec.At("type").Str(), spec.At("clusterIP").Str()
	if clusterIP != "" && clusterIP != corev1.ClusterIPNone {
		each("clusterIPs", address)
	}
	external, balancer := spec.At("externalIPs").Len() > 0, spec.At("loadBalancerIP").Str()
	headless := typ == "ClusterIP" && clusterIP == corev1.ClusterIPNone
	if headless && balancer != "" {
		warn("spec.loadBalancerIP is ignored for headless services")
	}
	if headless && external {
		warn("spec.externalIPs is ignored for headless services")
	}
	if headless && spec.At("sessionAffinity").Str() != "None" {
		warn("spec.SessionAffinity is ignored for headless services")
	}
	each("externalIPs", address)
	if external && !headless && typ != "ExternalName" {
		warn("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	warnings = append(warnings, address("spec.loadBalancerIP", balancer)...)
	each("loadBalancerSourceRanges", network)
	if typ == "ExternalName" && external {
		warn(`spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if typ != "ExternalName" && spec.At("externalName").Str() != "" {
		warn(`spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if spec.At("trafficDistribution").Str() == corev1.ServiceTrafficDistributionPreferClose {
		warn("spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameZone)
	}
	return warnings
}

// balancerStatus checks the addresses in the load balancer status of a Service or an Ingress.
func balancerStatus(obj, _ object.Value) (warnings []string) {
	for i, point := range obj.At("status", "loadBalancer", "ingress").Items() {
		warnings = append(warnings, address(fmt.Sprintf("status.loadBalancer.ingress[%d]", i), point.At("ip").Str())...)
	}
	return warnings
}

const ingressClass = "kubernetes.io/ingress.class"

func ingress(obj object.Value) []string {
	if annotated(obj.At("metadata"), ingressClass) && obj.At("spec", "ingressClassName").IsNull() {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead",
			ingressClass)}
	}
	return nil
}

func networkPolicy(obj object.Value) (warnings []string) {
	for _, way := range [...][2]string{{"ingress", "from"}, {"egress", "to"}} {
		for i, rule := range obj.At("spec", way[0]).Items() {
			for j, peer := range rule.At(way[1]).Items() {
				block := peer.At("ipBlock")
				path := fmt.Sprintf("spec.%s[%d].%s[%d].ipBlock.", way[0], i, way[1], j)
				warnings = append(warnings, network(path+"cidr", block.At("cidr").Str())...)
				for k, except := range block.At("except").Items() {
					warnings = append(warnings, network(fmt.Sprintf("%sexcept[%d]", path, k), except.Str())...)
				}
			}
		}
	}
	return warnings
}

// Objects of Kubernetes' own controllers are not checked, as in the reference: their addresses are canonical.
const (
	endpointsManagedBy  = "endpoints.kubernetes.io/managed-by"
	endpointsController = "endpoint-controller"
	slicesController    = "endpointslice-controller.k8s.io"
	mirrorController    = "endpointslicemirroring-controller.k8s.io"
)

func endpoints(obj object.Value) (warnings []string) {
	if obj.At("metadata", "labels", endpointsManagedBy).Str() == endpointsController {
		return nil
	}
	for i, subset := range obj.At("subsets").Items() {
		for _, key := range []string{"addresses", "notReadyAddresses"} {
			for j, a := range subset.At(key).Items() {
				warnings = append(warnings, address(fmt.Sprintf("subsets[%d].%s[%d].ip", i, key, j),
					a.At("ip").Str())...)
			}
		}
	}
	return warnings
}

func slice(obj object.Value) (warnings []string) {
	if obj.At("addressType").Str() == "FQDN" {
		warnings = append(warnings, "spec.addressType: FQDN endpoints are deprecated")
	}
	return append(warnings, sliceAddresses(obj)...)
}

func sliceAddresses(obj object.Value) (warnings []string) {
	switch obj.At("metadata", "labels", discoveryv1.LabelManagedBy).Str() {
	case slicesController, mirrorController:
		return nil
	}
	for i, e := range obj.At("endpoints").Items() {
		for j, a := range e.At("addresses").Items() {
			warnings = append(warnings, address(fmt.Sprintf("endpoints[%d].addresses[%d]", i, j), a.Str())...)
		}
	}
	return warnings
}
