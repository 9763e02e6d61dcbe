package defaults

import "plinth/object"

// Service defaults a Service.
func Service(obj object.Value) object.Value {
	w := over(obj)
	spec := w.get("spec")
	defaulted := serviceSpec(spec)
	w.replace("spec", spec, defaulted)
	if defaulted.At("type").Str() == "LoadBalancer" {
		w.part("status", serviceStatus)
	}
	return w.done()
}

func serviceSpec(spec object.Value) object.Value {
	kind := spec.At("type").Str()
	if kind == "" {
		kind = "ClusterIP"
	}
	w := over(spec)
	if kind == "LoadBalancer" {
		w.pointer("allocateLoadBalancerNodePorts", yes)
	}
	if reachableFromOutside(kind, spec) {
		w.text("externalTrafficPolicy", "Cluster")
	}
	if kind == "ClusterIP" || kind == "NodePort" || kind == "LoadBalancer" {
		w.pointer("internalTrafficPolicy", object.StringOf("Cluster"))
	}
	w.list("ports", servicePort)
	w.text("sessionAffinity", "None")
	sessionAffinityConfig(&w, spec)
	w.text("type", kind)
	return w.done()
}

func reachableFromOutside(kind string, spec object.Value) bool {
	return kind == "NodePort" || kind == "LoadBalancer" || kind == "ClusterIP" && spec.At("externalIPs").Len() > 0
}

// sessionAffinityConfig is set for the affinity by client address, and dropped for any other.
func sessionAffinityConfig(w *walk, spec object.Value) {
	const key = "sessionAffinityConfig"
	switch spec.At("sessionAffinity").Str() {
	case "", "None":
		w.get(key)
		w.drop(key)
	case "ClientIP":
		if w.get(key).At("clientIP", "timeoutSeconds").IsNull() {
			w.set(key, threeHours)
		}
	}
}

// threeHours is the default configuration of the affinity by client address.
var threeHours = object.Fields("clientIP", object.Fields("timeoutSeconds", object.IntOf(10800)))

func servicePort(port object.Value) object.Value {
	number, _ := port.Get("port")
	w := over(port)
	w.text("protocol", "TCP")
	targetPort(&w, object.IntOf(number.Int()))
	return w.done()
}

// targetPort is set to the port. It is never absent: a targetPort that is not set is 0 or "".
func targetPort(w *walk, port object.Value) {
	const key = "targetPort"
	old := w.get(key)
	if old.Len() == 0 && old.Int() == 0 && old != port {
		w.set(key, port)
	}
}

func serviceStatus(status object.Value) object.Value {
	return partOf(status, "loadBalancer", loadBalancerStatus)
}

func loadBalancerStatus(status object.Value) object.Value {
	return listOf(status, "ingress", loadBalancerIngress)
}

func loadBalancerIngress(ingress object.Value) object.Value {
	ip, _ := ingress.Get("ip")
	if ip.Len() == 0 {
		return ingress
	}
	return pointerOf(ingress, "ipMode", object.StringOf("VIP"))
}
