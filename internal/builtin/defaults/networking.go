package defaults

import "plinth/object"

// IngressClass defaults an IngressClass.
func IngressClass(obj object.Value) object.Value { return partOf(obj, "spec", ingressClassSpec) }

func ingressClassSpec(spec object.Value) object.Value {
	return optionalOf(spec, "parameters", ingressClassParameters)
}

func ingressClassParameters(parameters object.Value) object.Value {
	return pointerOf(parameters, "scope", object.StringOf("Cluster"))
}

// NetworkPolicy defaults a NetworkPolicy.
func NetworkPolicy(obj object.Value) object.Value { return partOf(obj, "spec", networkPolicySpec) }

func networkPolicySpec(spec object.Value) object.Value {
	w := over(spec)
	w.list("egress", networkPolicyRule)
	w.list("ingress", networkPolicyRule)
	if w.get("policyTypes").Len() == 0 {
		w.set("policyTypes", policyTypes(spec))
	}
	return w.done()
}

// policyTypes sets Ingress, and Egress if the policy has rules for it.
func policyTypes(spec object.Value) object.Value {
	if spec.At("egress").Len() > 0 {
		return object.Strings("Ingress", "Egress")
	}
	return object.Strings("Ingress")
}

func networkPolicyRule(rule object.Value) object.Value {
	return listOf(rule, "ports", networkPolicyPort)
}

func networkPolicyPort(port object.Value) object.Value {
	return pointerOf(port, "protocol", object.StringOf("TCP"))
}
