package gotypes

// tellsEmpty are the fields in which a rule of the reference tells an empty list or map from an absent one
// (schema.EmptyField), by the paths of the Go packages and types. They are the operands of comparisons with nil, and of
// reflect.DeepEqual, in its defaults, validation and strategies. Not among them are the fields of which only the
// generation depends on it: those of NetworkPolicies and webhook configurations. There each write of an empty list,
// which is never stored, raises the generation, although nothing changes; here such a write writes nothing.
var tellsEmpty = map[string]map[string][]string{
	"k8s.io/api/autoscaling/v2": {
		"HPAScalingRules": {"Policies"}, // [] is refused, an absent list has defaults
	},
	"k8s.io/api/core/v1": {
		"ConfigMap": {"BinaryData"}, // compared with reflect.DeepEqual if it is immutable
		// Validation refuses all that is not nil in an ephemeral container.
		"EphemeralContainerCommon": {"Ports", "ResizePolicy", "RestartPolicyRules"},
		"NodeStatus":               {"Allocatable"}, // {} has no default in what the writer owns
		// An update keeps the old list if the new one is nil.
		"PodStatus":            {"NodeAllocatableResourceClaimStatuses", "ResourceClaimStatuses"},
		"ResourceRequirements": {"Claims", "Limits", "Requests"}, // of Pods and of ephemeral containers: see above
		"Secret":               {"Data"},                         // as the data of a ConfigMap
	},
	"k8s.io/api/resource/v1": deviceFields,
	"k8s.io/api/resource/v1beta1": {
		// The conversion makes a member exactly if one of the fields that it has then is set.
		"DeviceRequest":     {"DerivedAttributes", "Selectors", "Tolerations"},
		"DeviceAttribute":   deviceFields["DeviceAttribute"],
		"ResourceSliceSpec": deviceFields["ResourceSliceSpec"],
	},
	"k8s.io/api/resource/v1beta2": deviceFields,
	"k8s.io/api/storage/v1":       volumeAttributesFields,
	"k8s.io/api/storage/v1beta1":  volumeAttributesFields,
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1": {
		// With the subresource status, all but some members of the root have to be nil.
		"JSONSchemaProps": {"AllOf", "AnyOf", "Definitions", "Dependencies", "Enum", "OneOf", "PatternProperties",
			"XListMapKeys"},
	},
}

var deviceFields = map[string][]string{
	"DeviceAttribute":   {"BoolValues", "IntValues", "StringValues", "VersionValues"}, // [] is refused
	"ResourceSliceSpec": {"Devices", "SharedCounters"},                                // only one may be there
}

// Compared with reflect.DeepEqual.
var volumeAttributesFields = map[string][]string{"VolumeAttributesClass": {"Parameters"}}
