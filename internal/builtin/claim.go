package builtin

import (
	"sync"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
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

// claimFeatures are the features of a ResourceClaim's spec, and flatClaimFeatures the same in v1beta1.
var (
	claimFeatures     = sync.OnceValue(func() *tree { return claimTree("exactly.") })
	flatClaimFeatures = sync.OnceValue(func() *tree { return claimTree("") })
)

// claimTree are the features of a ResourceClaim's spec; exactly is where the fields of a request are.
func claimTree(exactly string) *tree {
	inRequests := func(gate features.Gate, field string, more ...string) feature {
		return behind(gate, append(more, "devices.requests[]."+exactly+field,
			"devices.requests[].firstAvailable[]."+field)...)
	}
	return grow(
		inRequests(features.DRADerivedAttributes, "derivedAttributes"),
		inRequests(features.DRADeviceTaints, "tolerations"),
		inRequests(features.DRAConsumableCapacity, "capacity", "devices.constraints[].distinctAttribute"),
		behind(features.DRAAdminAccess, "devices.requests[]."+exactly+"adminAccess"),
		behind(features.DRAPrioritizedList, "devices.requests[].firstAvailable"),
	)
}

// claimsV1beta1 are the ResourceClaims of v1beta1, in which the fields of the member exactly of a request are in the
// request itself.
func claimsV1beta1() version {
	v := of[resourcev1beta1.ResourceClaim, resourcev1beta1.ResourceClaimList]()
	return v.by(convert.ResourceClaimV1beta1ToV1, convert.ResourceClaimV1ToV1beta1).but(func(k *kind) {
		k.defaults, k.gated = defaults.ResourceClaimV1beta1, []gated{grown("spec", flatClaimFeatures)}
		k.rules = validation.ResourceClaim.V1beta1(func(obj object.Value) object.Value {
			return converted(obj, convert.ResourceClaimV1beta1ToV1)
		})
	})
}

// claimTemplatesV1beta1 are the ResourceClaimTemplates of v1beta1.
func claimTemplatesV1beta1() version {
	v := of[resourcev1beta1.ResourceClaimTemplate, resourcev1beta1.ResourceClaimTemplateList]()
	return v.by(convert.ResourceClaimTemplateV1beta1ToV1, convert.ResourceClaimTemplateV1ToV1beta1).but(func(k *kind) {
		k.defaults, k.gated = defaults.ResourceClaimTemplateV1beta1, []gated{grown("spec.spec", flatClaimFeatures)}
		k.rules = validation.ResourceClaimTemplate.V1beta1(func(obj object.Value) object.Value {
			return converted(obj, convert.ResourceClaimTemplateV1beta1ToV1)
		})
	})
}

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
