package validation

import (
	"slices"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file prints values of Go types without JSON names in error messages, as the reference prints them.

// goField is a field of a Go type of the reference that has no JSON names: all of its fields are printed, under their
// Go names and in order.
type goField struct {
	name   string      // Go's
	member string      // ours
	zero   string      // printed for a member that omitempty leaves out; "": null
	inner  []goField   // the fields of a struct, of the structs in a list, or of the struct behind a pointer
	order  []string    // of the members of a type that does have JSON names, or of those in a list
	inline []jsonField // the members of an embedded struct, which are shown beside the other fields where they are set
}

// goForm is a value that the reference holds in such a type.
type goForm struct {
	value  object.Value
	fields []goField
}

// MarshalJSON implements json.Marshaler.
func (g goForm) MarshalJSON() ([]byte, error) { return appendGo(nil, g.value, g.fields), nil }

// GoString implements fmt.GoStringer: printed by reflection, fields that contain themselves would have no end.
func (g goForm) GoString() string { return string(appendGo(nil, g.value, g.fields)) }

func appendGo(dst []byte, v object.Value, fields []goField) []byte {
	switch {
	case v.Kind() == object.List:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendGo(dst, item, fields)
		}
		return append(dst, ']')
	case v.Kind() != object.Map || fields == nil:
		return object.AppendJSON(dst, v)
	}
	dst = append(dst, '{')
	for _, field := range fields {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		if field.inline != nil {
			dst = appendSet(dst, v.At(field.member), field.inline)
			continue
		}
		dst = append(object.AppendString(dst, field.name), ':')
		switch member := v.At(field.member); {
		case member.IsNull() && field.zero != "":
			dst = append(dst, field.zero...)
		case len(field.order) > 0 && member.Kind() == object.List:
			dst = appendOrdered(dst, member, members(field.order...))
		case len(field.order) > 0:
			dst = fielderrors.AppendShown(dst, member, field.order)
		default:
			dst = appendGo(dst, member, field.inner)
		}
	}
	return append(dst, '}')
}

// appendSet appends those members of a map that are set; omitempty has left the others out.
func appendSet(dst []byte, v object.Value, fields []jsonField) []byte {
	for _, field := range fields {
		member := v.At(field.name)
		if member.IsNull() {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = appendOrdered(append(object.AppendString(dst, field.name), ':'), member, field.inner)
	}
	return dst
}

var (
	podClaimFields = []goField{{name: "Name", member: "name"},
		{name: "ResourceClaimName", member: "resourceClaimName"},
		{name: "ResourceClaimTemplateName", member: "resourceClaimTemplateName"}}
	bundleFields = []goField{{name: "Name", member: "name"}, {name: "SignerName", member: "signerName"},
		{name: "LabelSelector", member: "labelSelector", order: selectorOrder}, {name: "Optional", member: "optional"},
		{name: "Path", member: "path"}, {name: "User", member: "user"}}
	seccompFields = []goField{{name: "Type", member: "type"},
		{name: "LocalhostProfile", member: "localhostProfile"}}
	securityContextFields = []goField{
		{name: "Capabilities", member: "capabilities", inner: []goField{{name: "Add", member: "add"},
			{name: "Drop", member: "drop"}}},
		{name: "Privileged", member: "privileged"},
		{name: "SELinuxOptions", member: "seLinuxOptions", inner: []goField{{name: "User", member: "user", zero: `""`},
			{name: "Role", member: "role", zero: `""`}, {name: "Type", member: "type", zero: `""`},
			{name: "Level", member: "level", zero: `""`}}},
		{name: "WindowsOptions", member: "windowsOptions",
			inner: []goField{{name: "GMSACredentialSpecName", member: "gmsaCredentialSpecName"},
				{name: "GMSACredentialSpec", member: "gmsaCredentialSpec"},
				{name: "RunAsUserName", member: "runAsUserName"}, {name: "HostProcess", member: "hostProcess"}}},
		{name: "RunAsUser", member: "runAsUser"}, {name: "RunAsGroup", member: "runAsGroup"},
		{name: "RunAsNonRoot", member: "runAsNonRoot"},
		{name: "ReadOnlyRootFilesystem", member: "readOnlyRootFilesystem"},
		{name: "AllowPrivilegeEscalation", member: "allowPrivilegeEscalation"},
		{name: "ProcMount", member: "procMount"},
		{name: "SeccompProfile", member: "seccompProfile", inner: seccompFields},
		{name: "AppArmorProfile", member: "appArmorProfile", inner: seccompFields},
	}
)

// The fields of the specs of a FlowSchema and of a PriorityLevelConfiguration.
var (
	nameField        = []goField{{name: "Name", member: "name"}}
	typeField        = []goField{{name: "Type", member: "type"}}
	flowSchemaFields = []goField{
		{name: "PriorityLevelConfiguration", member: "priorityLevelConfiguration", inner: nameField},
		{name: "MatchingPrecedence", member: "matchingPrecedence"},
		{name: "DistinguisherMethod", member: "distinguisherMethod", inner: typeField},
		{name: "Rules", member: "rules", inner: []goField{
			{name: "Subjects", member: "subjects", inner: []goField{{name: "Kind", member: "kind"},
				{name: "User", member: "user", inner: nameField}, {name: "Group", member: "group", inner: nameField},
				{name: "ServiceAccount", member: "serviceAccount",
					inner: []goField{{name: "Namespace", member: "namespace"}, {name: "Name", member: "name"}}}}},
			{name: "ResourceRules", member: "resourceRules", inner: []goField{{name: "Verbs", member: "verbs"},
				{name: "APIGroups", member: "apiGroups"}, {name: "Resources", member: "resources"},
				{name: "ClusterScope", member: "clusterScope", zero: "false"},
				{name: "Namespaces", member: "namespaces"}}},
			{name: "NonResourceRules", member: "nonResourceRules", inner: []goField{{name: "Verbs", member: "verbs"},
				{name: "NonResourceURLs", member: "nonResourceURLs"}}},
		}},
	}
	sharesField         = goField{name: "NominalConcurrencyShares", member: "nominalConcurrencyShares"}
	lendableField       = goField{name: "LendablePercent", member: "lendablePercent"}
	priorityLevelFields = []goField{
		{name: "Type", member: "type"},
		{name: "Limited", member: "limited", inner: []goField{
			sharesField,
			{name: "LimitResponse", member: "limitResponse", inner: []goField{
				{name: "Type", member: "type"},
				{name: "Queuing", member: "queuing", inner: []goField{{name: "Queues", member: "queues"},
					{name: "HandSize", member: "handSize"}, {name: "QueueLengthLimit", member: "queueLengthLimit"}}},
			}},
			lendableField,
			{name: "BorrowingLimitPercent", member: "borrowingLimitPercent"},
		}},
		{name: "Exempt", member: "exempt", inner: []goField{sharesField, lendableField}},
	}
)

// The fields of a ResourceClaimTemplate.
var (
	selectorFields = []goField{{name: "CEL", member: "cel",
		inner: []goField{{name: "Expression", member: "expression"}}}}
	capacityFields     = []goField{{name: "Requests", member: "requests"}}
	derivedFields      = []goField{{name: "Name", member: "name"}, {name: "Expression", member: "expression"}}
	exactRequestFields = []goField{{name: "DeviceClassName", member: "deviceClassName"},
		{name: "Selectors", member: "selectors", inner: selectorFields},
		{name: "AllocationMode", member: "allocationMode", zero: `""`}, {name: "Count", member: "count", zero: "0"},
		{name: "AdminAccess", member: "adminAccess"}, {name: "Tolerations", member: "tolerations",
			inner: tolerationFields},
		{name: "Capacity", member: "capacity", inner: capacityFields},
		{name: "DerivedAttributes", member: "derivedAttributes", inner: derivedFields}}
	alternativeFields = slices.DeleteFunc(slices.Concat([]goField{{name: "Name", member: "name"}}, exactRequestFields),
		func(field goField) bool { return field.name == "AdminAccess" })
	requestFields = []goField{{name: "Name", member: "name"},
		{name: "Exactly", member: "exactly", inner: exactRequestFields},
		{name: "FirstAvailable", member: "firstAvailable", inner: alternativeFields}}
	constraintFields = []goField{{name: "Requests", member: "requests"},
		{name: "MatchAttribute", member: "matchAttribute"},
		{name: "DistinctAttribute", member: "distinctAttribute"}}
	claimConfigFields = []goField{{name: "Requests", member: "requests"}, {name: "Opaque", member: "opaque",
		inner: []goField{{name: "Driver", member: "driver"}, {name: "Parameters", member: "parameters"}}}}
	claimFields = []goField{{name: "Devices", member: "devices",
		inner: []goField{{name: "Requests", member: "requests", inner: requestFields},
			{name: "Constraints", member: "constraints", inner: constraintFields},
			{name: "Config", member: "config", inner: claimConfigFields}}}}
	claimTemplateFields = []goField{
		{member: "metadata", inline: metaOrder},
		{name: "Spec", member: "spec", inner: claimFields},
	}
)

// jsonField is a member of a type of the reference, with the order of the members below it.
type jsonField struct {
	name  string
	inner []jsonField
}

// members are members of scalars, or of maps.
func members(names ...string) []jsonField {
	fields := make([]jsonField, len(names))
	for i, name := range names {
		fields[i].name = name
	}
	return fields
}

// jsonForm is a value whose members are shown in the order in which the reference's type has them.
type jsonForm struct {
	value  object.Value
	fields []jsonField
}

// MarshalJSON implements json.Marshaler.
func (j jsonForm) MarshalJSON() ([]byte, error) { return appendOrdered(nil, j.value, j.fields), nil }

// GoString implements fmt.GoStringer, as for goForm.
func (j jsonForm) GoString() string { return string(appendOrdered(nil, j.value, j.fields)) }

func appendOrdered(dst []byte, v object.Value, fields []jsonField) []byte {
	switch {
	case fields == nil || v.IsNull():
		return object.AppendJSON(dst, v)
	case v.Kind() == object.List:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendOrdered(dst, item, fields)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for _, field := range fields {
		member, ok := v.Get(field.name)
		if !ok {
			continue
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, field.name), ':')
		dst = appendOrdered(dst, member, field.inner)
	}
	return append(dst, '}')
}

// The order of the members of metadata.
var metaOrder = slices.Concat(
	members("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations"),
	[]jsonField{{"ownerReferences", members("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")}},
	members("finalizers"),
	[]jsonField{{"managedFields", members("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1",
		"subresource")}})

// The order of the members of a request for devices.
var (
	tolerationOrder = members("key", "operator", "value", "effect", "tolerationSeconds")
	requestDetails  = slices.Concat(members("deviceClassName", "selectors", "allocationMode", "count", "adminAccess"),
		[]jsonField{{"tolerations", tolerationOrder}}, members("capacity"),
		[]jsonField{{"derivedAttributes", members("name", "expression")}})
	alternativeOrder = slices.Concat(members("name"), requestDetails)
	requestOrder     = slices.Concat(members("name"), []jsonField{{"exactly", requestDetails},
		{"firstAvailable", alternativeOrder}})
	flatRequestOrder = slices.Concat(members("name", "deviceClassName", "selectors", "allocationMode", "count",
		"adminAccess"), []jsonField{{"firstAvailable", alternativeOrder}, {"tolerations", tolerationOrder}},
		members("capacity"), []jsonField{{"derivedAttributes", members("name", "expression")}})
)
