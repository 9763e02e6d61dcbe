package builtin

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

// resources is the group of dynamic resource allocation.
func resources(c Config) group {
	return group{"resource.k8s.io", "v1", []kind{
		{
			name: "deviceclasses", kind: "DeviceClass", schema: gotypes.Of[resourcev1.DeviceClass],
			list: gotypes.Of[resourcev1.DeviceClassList], cluster: true,
			rules:      validation.DeviceClass,
			naming:     wholeSubdomain,
			generation: spec, table: columns.DeviceClasses, answersDeleted: true,
		},
		{
			name: "devicetaintrules", kind: "DeviceTaintRule", referenceStorage: "v1beta2",
			timed: defaults.DeviceTaintRule, rules: validation.DeviceTaintRule,
			untouched: statusAlone,
			schema:    gotypes.Of[resourcev1.DeviceTaintRule], list: gotypes.Of[resourcev1.DeviceTaintRuleList], cluster: true,
			conditional: true, status: statusOnly, plainStatus: true, onUpdate: dateTaint(c.Now), generation: spec,
			table: columns.DeviceTaintRules,
		},
		{
			name: "resourceclaims", kind: "ResourceClaim", schema: gotypes.Of[resourcev1.ResourceClaim],
			list:     gotypes.Of[resourcev1.ResourceClaimList],
			defaults: defaults.ResourceClaim, rules: validation.ResourceClaim,
			untouched: statusAlone,
			status:    statusOnly, plainStatus: true, onStatus: dropFreedDevices,
			gated: []gated{grown("spec", claimFeatures)},
			gatedStatus: []gated{below("status", behind(features.DRAOptionalNodeOperations,
				"allocation.devices.results[].skipNodeOperations"))},
			table: columns.ResourceClaims, answersDeleted: true,
		},
		{
			name: "resourceclaimtemplates", kind: "ResourceClaimTemplate",
			defaults: defaults.ResourceClaimTemplate, rules: validation.ResourceClaimTemplate,
			schema: gotypes.Of[resourcev1.ResourceClaimTemplate], list: gotypes.Of[resourcev1.ResourceClaimTemplateList],
			gated: []gated{grown("spec.spec", claimFeatures)}, table: columns.ResourceClaimTemplates,
			answersDeleted: true,
		},
		{
			name: "resourceslices", kind: "ResourceSlice", schema: gotypes.Of[resourcev1.ResourceSlice],
			list: gotypes.Of[resourcev1.ResourceSliceList], cluster: true,
			timed: defaults.ResourceSlice, rules: validation.ResourceSlice, warnings: warnings.ResourceSlice,
			generation: spec,
			gated: []gated{below("spec",
				behind(features.DRAPartitionableDevicesType, "partitionTypeAttribute"),
				behind(features.DRAOptionalNodeOperations, "skipNodeOperations"),
				behind(features.DRANodeAllocatableResources, "devices[].nodeAllocatableResources"),
				behind(features.DRADeviceCompatibilityGroups, "devices[].consumesCounters[].compatibilityGroups"),
				behind(features.DRAListTypeAttributes,
					"devices[].attributes{}.bools", "devices[].attributes{}.ints",
					"devices[].attributes{}.strings", "devices[].attributes{}.versions",
				),
			)},
			fields: []selectable{
				text("spec.driver"),
				text("spec.nodeName"),
				text("spec.pool.name"),
			},
			unknownField: func(name string) string {
				return "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: " + name
			},
			table: columns.ResourceSlices, answersDeleted: true,
		},
	}}
}

// dateTaint sets the time of a taint when its effect changes and the client leaves the time as it was.
func dateTaint(now func() time.Time) func(obj, old object.Value) object.Value {
	return func(obj, old object.Value) object.Value {
		is, was := obj.At("spec", "taint"), old.At("spec", "taint")
		if !object.Equal(is.At("effect"), was.At("effect")) && object.Equal(is.At("timeAdded"), was.At("timeAdded")) {
			obj = obj.WithAt(object.StringOf(now().UTC().Format(time.RFC3339)), "spec", "taint", "timeAdded")
		}
		return obj
	}
}
