package builtin

import (
	"sync"

	"plinth/internal/features"
	"plinth/object"
)

// dropFreedDevices drops the entries of status.devices for devices that are no longer allocated to the ResourceClaim.
func dropFreedDevices(obj, old object.Value) object.Value {
	freed := allocated(old)
	for id := range allocated(obj) {
		delete(freed, id)
	}
	devices := obj.At("status", "devices").Items()
	if len(freed) == 0 || len(devices) == 0 {
		return obj
	}
	var left []object.Value
	for _, d := range devices {
		if !freed[deviceOf(d)] {
			left = append(left, d)
		}
	}
	if len(left) == 0 {
		return obj.WithoutAt("status", "devices")
	}
	return obj.WithAt(object.ListOf(left...), "status", "devices")
}

// claimFeatures are the features of a ResourceClaim's spec that are off by default.
var claimFeatures = sync.OnceValue(func() *tree {
	return grow(behind(features.DRADerivedAttributes,
		"devices.requests[].exactly.derivedAttributes", "devices.requests[].firstAvailable[].derivedAttributes"))
})

// device identifies a device, or a share of one.
type device struct{ driver, pool, device, share string }

func deviceOf(v object.Value) device {
	return device{v.At("driver").Str(), v.At("pool").Str(), v.At("device").Str(), v.At("shareID").Str()}
}

func allocated(claim object.Value) map[device]bool {
	devices := map[device]bool{}
	for _, r := range claim.At("status", "allocation", "devices", "results").Items() {
		devices[deviceOf(r)] = true
	}
	return devices
}
