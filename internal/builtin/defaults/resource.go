package defaults

import (
	"time"

	"plinth/object"
)

// ResourceClaim defaults a ResourceClaim.
func ResourceClaim(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", resourceClaimSpec)
	w.part("status", resourceClaimStatus)
	return w.done()
}

// ResourceClaimTemplate defaults a ResourceClaimTemplate.
func ResourceClaimTemplate(obj object.Value) object.Value {
	return partOf(obj, "spec", func(template object.Value) object.Value {
		return partOf(template, "spec", resourceClaimSpec)
	})
}

// ResourceClaimV1beta1 defaults a ResourceClaim of v1beta1.
func ResourceClaimV1beta1(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", resourceClaimSpecV1beta1)
	w.part("status", resourceClaimStatus)
	return w.done()
}

// ResourceClaimTemplateV1beta1 defaults a ResourceClaimTemplate of v1beta1.
func ResourceClaimTemplateV1beta1(obj object.Value) object.Value {
	return partOf(obj, "spec", func(template object.Value) object.Value {
		return partOf(template, "spec", resourceClaimSpecV1beta1)
	})
}

func resourceClaimSpecV1beta1(spec object.Value) object.Value {
	return partOf(spec, "devices", func(devices object.Value) object.Value {
		return listOf(devices, "requests", deviceRequestV1beta1)
	})
}

// deviceRequestV1beta1 defaults a request that has either alternatives or the fields of a request for one class.
func deviceRequestV1beta1(request object.Value) object.Value {
	w := over(request)
	if mode := request.At("allocationMode").Str(); request.At("deviceClassName").Len() > 0 {
		w.text("allocationMode", "ExactCount")
		if mode == "" || mode == "ExactCount" {
			w.number("count", 1)
		}
	}
	w.list("firstAvailable", exactDeviceRequest)
	w.list("tolerations", deviceToleration)
	return w.done()
}

func resourceClaimSpec(spec object.Value) object.Value { return partOf(spec, "devices", deviceClaim) }

func deviceClaim(devices object.Value) object.Value {
	return listOf(devices, "requests", deviceRequest)
}

func deviceRequest(request object.Value) object.Value {
	w := over(request)
	w.optional("exactly", exactDeviceRequest)
	w.list("firstAvailable", exactDeviceRequest)
	return w.done()
}

// exactDeviceRequest defaults a request for devices of one class: a single one, or one of several alternatives.
func exactDeviceRequest(request object.Value) object.Value {
	mode := request.At("allocationMode").Str()
	w := over(request)
	w.text("allocationMode", "ExactCount")
	if mode == "" || mode == "ExactCount" {
		w.number("count", 1)
	}
	w.list("tolerations", deviceToleration)
	return w.done()
}

func deviceToleration(toleration object.Value) object.Value {
	return textOf(toleration, "operator", "Equal")
}

func resourceClaimStatus(status object.Value) object.Value {
	return optionalOf(status, "allocation", allocationResult)
}

func allocationResult(allocation object.Value) object.Value {
	return partOf(allocation, "devices", allocatedDevices)
}

func allocatedDevices(devices object.Value) object.Value {
	return listOf(devices, "results", allocatedDevice)
}

func allocatedDevice(device object.Value) object.Value {
	return listOf(device, "tolerations", deviceToleration)
}

// DeviceTaintRule defaults a DeviceTaintRule: timeAdded of its taint is now.
func DeviceTaintRule(obj object.Value, now time.Time) object.Value {
	return partOf(obj, "spec", func(spec object.Value) object.Value {
		return partOf(spec, "taint", func(taint object.Value) object.Value { return timeAdded(taint, now) })
	})
}

// ResourcePoolStatusRequest defaults a ResourcePoolStatusRequest.
func ResourcePoolStatusRequest(obj object.Value) object.Value {
	return partOf(obj, "spec", func(spec object.Value) object.Value {
		w := over(spec)
		w.pointer("limit", object.IntOf(defaultPools))
		return w.done()
	})
}

// defaultPools is how many pools a ResourcePoolStatusRequest asks about if it does not say.
const defaultPools = 100

// ResourceSlice defaults a ResourceSlice: timeAdded of its devices' taints is now.
func ResourceSlice(obj object.Value, now time.Time) object.Value {
	return partOf(obj, "spec", func(spec object.Value) object.Value {
		return listOf(spec, "devices", func(device object.Value) object.Value { return deviceTaints(device, now) })
	})
}

// ResourceSliceV1beta1 defaults a ResourceSlice of v1beta1.
func ResourceSliceV1beta1(obj object.Value, now time.Time) object.Value {
	return partOf(obj, "spec", func(spec object.Value) object.Value {
		return listOf(spec, "devices", func(device object.Value) object.Value {
			return optionalOf(device, "basic", func(basic object.Value) object.Value { return deviceTaints(basic, now) })
		})
	})
}

func deviceTaints(device object.Value, now time.Time) object.Value {
	return listOf(device, "taints", func(taint object.Value) object.Value { return timeAdded(taint, now) })
}

func timeAdded(taint object.Value, now time.Time) object.Value {
	const key = "timeAdded"
	w := over(taint)
	if w.get(key).IsNull() {
		w.set(key, object.StringOf(now.UTC().Format(time.RFC3339)))
	}
	return w.done()
}
