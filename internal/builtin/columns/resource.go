package columns

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"plinth/object"
)

// resource.k8s.io
var (
	DeviceClasses = of(name, age)

	DeviceTaintRules = of(name,
		str("Key", doc[resourcev1.DeviceTaint]("key"), text("spec", "taint", "key")),
		str("Value", doc[resourcev1.DeviceTaint]("value"), text("spec", "taint", "value")),
		str("Effect", doc[resourcev1.DeviceTaint]("effect"), text("spec", "taint", "effect")),
		str("TimeAdded", doc[resourcev1.DeviceTaint]("timeAdded"), func(obj object.Value) any {
			if v := obj.At("spec", "taint", "timeAdded"); !v.IsNull() {
				return ago(v)
			}
			return ""
		}),
		age,
	)

	ResourceClaims = of(name, str("State", "A summary of the current state (allocated, pending, reserved, etc.).",
		claimState), age)

	ResourceClaimTemplates = of(name, age)

	ResourceSlices = of(name,
		str("Node", doc[resourcev1.ResourceSliceSpec]("nodeName"), text("spec", "nodeName")),
		str("Driver", doc[resourcev1.ResourceSliceSpec]("driver"), text("spec", "driver")),
		str("Pool", doc[resourcev1.ResourcePool]("name"), text("spec", "pool", "name")),
		age,
	)
)

func claimState(obj object.Value) any {
	var states []string
	allocated := !obj.At("status", "allocation").IsNull()
	if deleted(obj) {
		states = append(states, "deleted")
	} else if !allocated {
		states = append(states, "pending")
	}
	if allocated {
		states = append(states, "allocated")
		if obj.At("status", "reservedFor").Len() > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}
