package convert

import "plinth/object"

// In v1beta1 of resource.k8s.io the fields of a request for devices of one class are in the request itself, those of a
// device are in its member basic, and two choices of nodes for a ResourceSlice have empty values instead of none.

const (
	resourceV1      = "resource.k8s.io/v1"
	resourceV1beta1 = "resource.k8s.io/v1beta1"
)

// exactFields are the members that a request has in v1beta1 and its member exactly in v1.
var exactFields = []string{"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations",
	"capacity", "derivedAttributes"}

// ResourceClaimV1beta1ToV1 converts a ResourceClaim. It never fails, like all conversions of this group.
func ResourceClaimV1beta1ToV1(obj object.Value) (object.Value, error) {
	return withRequests(obj, resourceV1, nested, "spec", "devices", "requests"), nil
}

// ResourceClaimV1ToV1beta1 converts a ResourceClaim.
func ResourceClaimV1ToV1beta1(obj object.Value) (object.Value, error) {
	return withRequests(obj, resourceV1beta1, flat, "spec", "devices", "requests"), nil
}

// ResourceClaimTemplateV1beta1ToV1 converts a ResourceClaimTemplate.
func ResourceClaimTemplateV1beta1ToV1(obj object.Value) (object.Value, error) {
	return withRequests(obj, resourceV1, nested, "spec", "spec", "devices", "requests"), nil
}

// ResourceClaimTemplateV1ToV1beta1 converts a ResourceClaimTemplate.
func ResourceClaimTemplateV1ToV1beta1(obj object.Value) (object.Value, error) {
	return withRequests(obj, resourceV1beta1, flat, "spec", "spec", "devices", "requests"), nil
}

// withRequests converts each item of a list, if there is one.
func withRequests(obj object.Value, apiVersion string, convert func(object.Value) object.Value,
	path ...string) object.Value {
	obj = obj.With("apiVersion", object.StringOf(apiVersion))
	items := obj.At(path...)
	if items.Len() == 0 {
		return obj
	}
	for i, item := range items.Items() {
		items = items.WithItem(i, convert(item))
	}
	return obj.WithAt(items, path...)
}

// nested moves the fields of a request into its member exactly, if one of them is set.
func nested(request object.Value) object.Value {
	var exactly []object.Member
	set := false
	for _, key := range exactFields {
		v, ok := request.Get(key)
		if !ok {
			continue
		}
		exactly = append(exactly, object.Member{Key: key, Value: v})
		switch key {
		case "deviceClassName", "allocationMode":
			set = set || v.Len() > 0
		case "count":
			set = set || v.Int() != 0
		default:
			set = set || !v.IsNull()
		}
	}
	if !set {
		return request.Edit(nil, exactFields...)
	}
	return request.Edit([]object.Member{{Key: "exactly", Value: object.MapOf(exactly...)}}, exactFields...)
}

// flat moves the fields of exactly into the request.
func flat(request object.Value) object.Value {
	exactly := request.At("exactly")
	set := []object.Member{{Key: "deviceClassName", Value: object.StringOf("")}}
	if !exactly.IsNull() {
		set = append([]object.Member(nil), exactly.Members()...)
	}
	return request.Edit(set, "exactly")
}

// ResourceSliceV1beta1ToV1 converts a ResourceSlice.
func ResourceSliceV1beta1ToV1(obj object.Value) (object.Value, error) {
	obj = withRequests(obj, resourceV1, func(device object.Value) object.Value {
		basic := device.At("basic")
		return device.Edit(append([]object.Member(nil), basic.Members()...), "basic")
	}, "spec", "devices")
	if v, ok := obj.At("spec").Get("nodeName"); ok && v.Len() == 0 {
		obj = obj.WithoutAt("spec", "nodeName")
	}
	if v, ok := obj.At("spec").Get("allNodes"); ok && !v.Bool() {
		obj = obj.WithoutAt("spec", "allNodes")
	}
	return obj, nil
}

// ResourceSliceV1ToV1beta1 converts a ResourceSlice.
func ResourceSliceV1ToV1beta1(obj object.Value) (object.Value, error) {
	obj = withRequests(obj, resourceV1beta1, func(device object.Value) object.Value {
		name := device.At("name")
		basic := device.Without("name")
		return object.MapOf(object.Member{Key: "name", Value: name}, object.Member{Key: "basic", Value: basic})
	}, "spec", "devices")
	if v, ok := obj.At("spec").Get("nodeName"); ok && v.Len() == 0 {
		obj = obj.WithoutAt("spec", "nodeName")
	}
	if v, ok := obj.At("spec").Get("allNodes"); ok && !v.Bool() {
		obj = obj.WithoutAt("spec", "allNodes")
	}
	return obj, nil
}
