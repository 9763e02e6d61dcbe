package builtin

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/features"
	"plinth/object"
)

// resources is the group of dynamic resource allocation.
func resources(c Config) group {
	return group{"resource.k8s.io", []kind{
		{
			name: "deviceclasses", kind: "DeviceClass",
			versions: []version{
				of[resourcev1.DeviceClass, resourcev1.DeviceClassList](),
				of[resourcev1beta2.DeviceClass, resourcev1beta2.DeviceClassList](),
				of[resourcev1beta1.DeviceClass, resourcev1beta1.DeviceClassList](),
			},
			cluster:    true,
			rules:      validation.DeviceClass,
			naming:     wholeSubdomain,
			gated:      []gated{below("spec", behind(features.DRAExtendedResource, "extendedResourceName"))},
			generation: spec, table: columns.DeviceClasses, answersDeleted: true,
		},
		{
			name: "devicetaintrules", kind: "DeviceTaintRule", stored: "v1beta2",
			timed: defaults.DeviceTaintRule, rules: validation.DeviceTaintRule,
			untouched: statusAlone,
			versions: []version{
				of[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList](),
				of[resourcev1beta2.DeviceTaintRule, resourcev1beta2.DeviceTaintRuleList]().but(legacyTaintRule),
				of[resourcev1alpha3.DeviceTaintRule, resourcev1alpha3.DeviceTaintRuleList]().but(legacyTaintRule),
			},
			cluster:     true,
			conditional: true, status: statusOnly, plainStatus: true, onUpdate: dateTaint(c.Now), generation: spec,
			table: columns.DeviceTaintRules,
		},
		{
			name: "resourceclaims", kind: "ResourceClaim",
			versions: []version{
				of[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](),
				of[resourcev1beta2.ResourceClaim, resourcev1beta2.ResourceClaimList](),
				claimsV1beta1(),
			},
			defaults: defaults.ResourceClaim, rules: validation.ResourceClaim,
			untouched: statusAlone,
			status:    statusOnly, plainStatus: true, onStatus: dropFreedDevices,
			gated: []gated{grown("spec", claimFeatures)},
			gatedStatus: []gated{below("status",
				behind(features.DRAOptionalNodeOperations, "allocation.devices.results[].skipNodeOperations"),
				behind(features.DRAResourceClaimDeviceStatus, "devices"),
				behind(features.DRAConsumableCapacity, "allocation.devices.results[].shareID",
					"allocation.devices.results[].consumedCapacity", "devices[].shareID"),
				behind(features.DRADeviceBindingConditions, "allocation.devices.results[].bindingConditions",
					"allocation.devices.results[].bindingFailureConditions"),
			)},
			table: columns.ResourceClaims, answersDeleted: true,
			acts: c.claimAccess,
		},
		{
			name: "resourceclaimtemplates", kind: "ResourceClaimTemplate",
			defaults: defaults.ResourceClaimTemplate, rules: validation.ResourceClaimTemplate,
			versions: []version{
				of[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](),
				of[resourcev1beta2.ResourceClaimTemplate, resourcev1beta2.ResourceClaimTemplateList](),
				claimTemplatesV1beta1(),
			},
			gated: []gated{grown("spec.spec", claimFeatures)}, table: columns.ResourceClaimTemplates,
			answersDeleted: true,
			acts:           adminAccess("spec", "spec", "devices", "requests"),
		},
		{
			name: "resourcepoolstatusrequests", kind: "ResourcePoolStatusRequest", stored: "v1alpha3",
			versions: []version{
				of[resourcev1alpha3.ResourcePoolStatusRequest, resourcev1alpha3.ResourcePoolStatusRequestList](),
			},
			cluster:  true,
			defaults: defaults.ResourcePoolStatusRequest, rules: validation.ResourcePoolStatusRequest,
			untouched:   statusAlone,
			conditional: true, status: statusOnly, plainStatus: true,
			onCreate: func(obj object.Value) object.Value { return obj.Without("status") },
			gated:    []gated{below("spec", behind(features.DRAPartitionableDevicesType, "defaultPartitionTypeAttribute"))},
			table:    columns.ResourcePoolStatusRequests, answersDeleted: true,
		},
		{
			name: "resourceslices", kind: "ResourceSlice",
			versions: []version{
				of[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](),
				of[resourcev1beta2.ResourceSlice, resourcev1beta2.ResourceSliceList]().
					but(func(k *kind) { k.unknownField = noSliceField("v1beta2") }),
				slicesV1beta1(),
			},
			cluster: true,
			timed:   defaults.ResourceSlice, rules: validation.ResourceSlice, warnings: warnings.ResourceSlice,
			generation: spec,
			gated:      []gated{grown("spec", sliceFeatures)},
			fields: []selectable{
				text("spec.driver"),
				text("spec.nodeName"),
				text("spec.pool.name"),
			},
			unknownField: noSliceField("v1"),
			table:        columns.ResourceSlices, answersDeleted: true,
		},
	}}
}

// legacyTaintRule is what DeviceTaintRules were before v1, which was the occasion to change both.
func legacyTaintRule(k *kind) { k.conditional, k.answersDeleted = false, true }

// dateTaint sets the time of a taint when its effect changes and the client leaves the time as it was.
func dateTaint(now func() time.Time) func(obj, old object.Value) object.Value {
	return func(obj, old object.Value) object.Value {
		current, before := obj.At("spec", "taint"), old.At("spec", "taint")
		if !object.Equal(current.At("effect"), before.At("effect")) &&
			object.Equal(current.At("timeAdded"), before.At("timeAdded")) {
			obj = obj.WithAt(object.StringOf(now().UTC().Format(time.RFC3339)), "spec", "taint", "timeAdded")
		}
		return obj
	}
}
