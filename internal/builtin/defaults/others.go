package defaults

import "plinth/object"

// TokenRequest defaults a TokenRequest of authentication.k8s.io.
func TokenRequest(obj object.Value) object.Value { return partOf(obj, "spec", expirationSeconds) }

// PodCertificateRequest defaults a PodCertificateRequest of certificates.k8s.io: a certificate is valid for a day at
// most.
func PodCertificateRequest(obj object.Value) object.Value {
	return partOf(obj, "spec", maxExpirationSeconds)
}

func maxExpirationSeconds(spec object.Value) object.Value {
	return pointerOf(spec, "maxExpirationSeconds", object.IntOf(86400))
}

// EndpointSlice defaults an EndpointSlice of discovery.k8s.io.
func EndpointSlice(obj object.Value) object.Value { return listOf(obj, "ports", endpointSlicePort) }

func endpointSlicePort(port object.Value) object.Value {
	w := over(port)
	w.pointer("name", object.StringOf(""))
	w.pointer("protocol", object.StringOf("TCP"))
	return w.done()
}

// PriorityClass defaults a PriorityClass of scheduling.k8s.io.
func PriorityClass(obj object.Value) object.Value {
	return pointerOf(obj, "preemptionPolicy", object.StringOf("PreemptLowerPriority"))
}

// PodGroup defaults a PodGroup or a CompositePodGroup of scheduling.k8s.io. preempts says that the gate
// PodGroupPreemptionPolicy is on.
func PodGroup(obj object.Value, preempts bool) object.Value {
	return partOf(obj, "spec", func(spec object.Value) object.Value {
		w := over(spec)
		w.pointer("disruptionMode", singly)
		if preempts {
			w.pointer("preemptionPolicy", object.StringOf("PreemptLowerPriority"))
		}
		return w.done()
	})
}

// singly is the mode in which what is in a group is disrupted one by one.
var singly = object.Fields("single", object.MapOf())
