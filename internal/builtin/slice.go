package builtin

import (
	"sync"
	"time"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
	"plinth/object"
)

// sliceFeatures are the features of a ResourceSlice's spec, and basicSliceFeatures the same in v1beta1.
var (
	sliceFeatures      = sync.OnceValue(func() *tree { return sliceTree("devices[].") })
	basicSliceFeatures = sync.OnceValue(func() *tree { return sliceTree("devices[].basic.") })
)

// sliceTree are the features of a ResourceSlice's spec; device is where the fields of a device are.
func sliceTree(device string) *tree {
	inDevices := func(gate features.Gate, fields ...string) feature {
		f := behind(gate)
		for _, field := range fields {
			f.fields = append(f.fields, device+field)
		}
		return f
	}
	partitionable := inDevices(features.DRAPartitionableDevices, "consumesCounters", "nodeName", "nodeSelector",
		"allNodes")
	partitionable.fields = append(partitionable.fields, "sharedCounters", "perDeviceNodeSelection")
	return grow(
		behind(features.DRAPartitionableDevicesType, "partitionTypeAttribute"),
		behind(features.DRAOptionalNodeOperations, "skipNodeOperations"),
		inDevices(features.DRANodeAllocatableResources, "nodeAllocatableResources"),
		inDevices(features.DRADeviceCompatibilityGroups, "consumesCounters[].compatibilityGroups"),
		inDevices(features.DRADeviceTaints, "taints"),
		partitionable,
		inDevices(features.DRADeviceBindingConditions, "bindingConditions", "bindingFailureConditions", "bindsToNode"),
		inDevices(features.DRAConsumableCapacity, "allowMultipleAllocations", "capacity{}.requestPolicy"),
		inDevices(features.DRAListTypeAttributes, "attributes{}.bools", "attributes{}.ints", "attributes{}.strings",
			"attributes{}.versions"),
	)
}

// slicesV1beta1 are the ResourceSlices of v1beta1, in which the fields of a device are in its member basic.
func slicesV1beta1() version {
	v := of[resourcev1beta1.ResourceSlice, resourcev1beta1.ResourceSliceList]()
	return v.by(convert.ResourceSliceV1beta1ToV1, convert.ResourceSliceV1ToV1beta1).but(func(k *kind) {
		k.timed, k.gated = sliceV1beta1, []gated{grown("spec", basicSliceFeatures)}
		k.unknownField = noSliceField("v1beta1")
		k.rules = validation.ResourceSlice.V1beta1(func(obj object.Value) object.Value {
			return converted(obj, convert.ResourceSliceV1beta1ToV1)
		})
	})
}

// sliceV1beta1 defaults a ResourceSlice of v1beta1, and gives every device a member basic: the conversion from v1 makes
// one for each, so that a PUT of a device without it would change the object and its generation.
func sliceV1beta1(obj object.Value, now time.Time) object.Value {
	obj = defaults.ResourceSliceV1beta1(obj, now)
	devices := obj.At("spec", "devices")
	for i, device := range devices.Items() {
		if device.At("basic").IsNull() {
			devices = devices.WithItem(i, device.With("basic", object.MapOf()))
		}
	}
	if devices.Len() == 0 {
		return obj
	}
	return obj.WithAt(devices, "spec", "devices")
}

// noSliceField is the error for a field that is not selectable.
func noSliceField(version string) func(name string) string {
	return func(name string) string {
		return "field label not supported for resource.k8s.io/" + version + ", Kind=ResourceSlice: " + name
	}
}
