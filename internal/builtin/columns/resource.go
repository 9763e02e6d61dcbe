package columns

import (
	"fmt"
	"strconv"
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

	ResourcePoolStatusRequests = of(name,
		str("Driver", "The driver to query pools for.", text("spec", "driver")),
		str("Total", "Total number of devices across all pools.", overPools(devicesOf("totalDevices"))),
		str("Available", "Number of available devices across all pools.", overPools(devicesOf("availableDevices"))),
		str("Allocated", "Number of allocated devices across all pools.", overPools(devicesOf("allocatedDevices"))),
		str("Unavailable", "Number of unavailable devices across all pools.",
			overPools(devicesOf("unavailableDevices"))),
		str("Errors", "Number of pools with validation errors.", overPools(faulty)),
		integer("Pools", "Total number of matching pools.", whole("status", "poolCount")),
		str("Status", "Processing status.", poolRequestState),
		str("Completed", "Time since the observation completed.", poolRequestCompleted),
	)

	ResourceSlices = of(name,
		str("Node", doc[resourcev1.ResourceSliceSpec]("nodeName"), text("spec", "nodeName")),
		str("Driver", doc[resourcev1.ResourceSliceSpec]("driver"), text("spec", "driver")),
		str("Pool", doc[resourcev1.ResourcePool]("name"), text("spec", "pool", "name")),
		age,
	)
)

// poolRequestStatus returns the state of a ResourcePoolStatusRequest, and the condition that tells it, null while it is
// pending.
func poolRequestStatus(obj object.Value) (state string, by object.Value) {
	for _, c := range obj.At("status", "conditions").Items() {
		if kind := c.At("type").Str(); (kind == "Complete" || kind == "Failed") && isTrue(c) {
			return kind, c
		}
	}
	return "Pending", object.Nil
}

func poolRequestState(obj object.Value) any {
	state, _ := poolRequestStatus(obj)
	found, shown := obj.At("status", "poolCount").Int(), obj.At("status", "pools").Len()
	if state == "Complete" && found > int64(shown) {
		return fmt.Sprintf("Complete (%d/%d pools)", shown, found)
	}
	return state
}

func poolRequestCompleted(obj object.Value) any {
	if state, by := poolRequestStatus(obj); state == "Complete" {
		return ago(by.At("lastTransitionTime"))
	}
	return none
}

// overPools returns a cell with the sum of a number of each pool, as an int32 of Go; "-" until there is an answer.
func overPools(number func(pool object.Value) int64) cell {
	return func(obj object.Value) any {
		state, _ := poolRequestStatus(obj)
		if obj.At("status").IsNull() || state == "Failed" {
			return "-"
		}
		var sum int32
		for _, pool := range obj.At("status", "pools").Items() {
			sum += int32(number(pool))
		}
		return strconv.Itoa(int(sum))
	}
}

// devicesOf is the member of a pool that counts some of its devices.
func devicesOf(key string) func(pool object.Value) int64 {
	return func(pool object.Value) int64 { return pool.At(key).Int() }
}

// faulty counts a pool with an error.
func faulty(pool object.Value) int64 {
	if pool.At("validationError").IsNull() {
		return 0
	}
	return 1
}

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
