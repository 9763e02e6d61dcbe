package validation

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// The rules of ResourceSlice: the devices that a driver offers.

const (
	maxSliceDevices         = 128
	maxAdvancedSliceDevices = 64 // with taints, counters or lists of values
	maxCounterSets          = 8
	maxCounters             = 32
	maxConsumedSets         = 2
	maxCompatibilityGroups  = 2
	maxDeviceNames          = 32 // attributes and capacities
	maxDeviceValues         = 48
	maxDeviceTaints         = 16
	maxBindingConditions    = 4
	maxDeviceValue          = 64
	maxDeviceID             = 32
	maxAttributeKey         = maxDriverName + 1 + maxDeviceID
	maxRequestOptions       = 10
	oneNodeChoice           = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	oneDeviceChoice         = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true" +
		" in the ResourceSlice spec"
	oneDeviceValue = "exactly one value must be specified"
	unsetOrTrue    = "must be either unset or set to true"
)

// semantic matches a version in the syntax of semver.org.
var semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

// poolName demands DNS subdomains, separated by slashes.
func (f *errorList) poolName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	if len(name) > utilvalidation.DNS1123SubdomainMaxLength {
		f.TooLong(p, utilvalidation.DNS1123SubdomainMaxLength)
	}
	for part := range strings.SplitSeq(name, "/") {
		f.subdomain(p, part)
	}
}

// declaredPoolName is poolName with the messages of generated rules.
func (f *errorList) declaredPoolName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	f.declaredPoolSegments(p, name)
}

// declaredPoolSegments is declaredPoolName for a name that may be empty: it has one empty segment then.
func (f *errorList) declaredPoolSegments(p *fielderrors.Location, name string) {
	if len(name) > utilvalidation.DNS1123SubdomainMaxLength {
		f.TooLong(p, utilvalidation.DNS1123SubdomainMaxLength)
	}
	for i, part := range strings.Split(name, "/") {
		if part == "" {
			f.Invalid(p, name, fmt.Sprintf("segment %d: must not be empty", i))
			continue
		}
		for _, detail := range objectmeta.LongNameErrors(part) {
			f.Invalid(p, part, fmt.Sprintf("segment %d: %s", i, detail))
		}
	}
}

func resourceSliceCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.resourceSlice(obj.At("spec"), object.Nil)
}

func resourceSliceUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	spec, before, at := obj.At("spec"), old.At("spec"), (*fielderrors.Location)(nil).To("spec")
	if name := text(spec.At("pool"), "name"); name != text(before.At("pool"), "name") {
		f.Invalid(at.To("pool").To("name"), name, fielderrors.Immutable)
	}
	if driver := text(spec, "driver"); driver != text(before, "driver") {
		f.Invalid(at.To("driver"), driver, fielderrors.Immutable)
	}
	if node := spec.At("nodeName"); !object.Equal(node, before.At("nodeName")) {
		f.Invalid(at.To("nodeName"), fielderrors.Show(node), fielderrors.Immutable)
	}
	f.resourceSlice(spec, before)
}

func (f *errorList) resourceSlice(spec, old object.Value) {
	at := (*fielderrors.Location)(nil).To("spec")
	f.csiDriverName(at.To("driver"), text(spec, "driver"))
	pool := spec.At("pool")
	f.poolName(at.To("pool").To("name"), text(pool, "name"))
	f.positive(at.To("pool").To("resourceSliceCount"), number(pool, "resourceSliceCount"))
	f.nonNegativeZero(at.To("pool").To("generation"), number(pool, "generation"))
	f.sliceNodes(spec, at)
	devices, counters := spec.At("devices"), spec.At("sharedCounters")
	if !counters.IsNull() && !devices.IsNull() {
		f.Invalid(at, "", "only one of `sharedCounters` or `devices` is allowed")
	}
	limit := maxSliceDevices
	if anyDevice(devices, isAdvanced) {
		limit = maxAdvancedSliceDevices
	}
	if in := at.To("devices"); !f.tooMany(devices, limit, in) {
		each := truth(spec, "perDeviceNodeSelection")
		for i, device := range devices.Items() {
			f.device(device, deviceOf(old, text(device, "name")), each, in.Item(i))
		}
		f.unique(devices, named, in)
	}
	if in := at.To("sharedCounters"); !f.tooMany(counters, maxCounterSets, in) {
		for i, set := range counters.Items() {
			f.requiredShortName(in.Item(i).To("name"), text(set, "name"))
			f.counters(set.At("counters"), in.Item(i).To("counters"), in.Item(i).To("counters"))
		}
		f.uniqueItems(counters, "name", in, members("name", "counters"))
	}
	f.partitionType(spec, at)
	f.skippedOperations(spec.At("skipNodeOperations"), at.To("skipNodeOperations"))
}

// sliceNodes checks the selection of nodes that can use the devices of a slice.
func (f *errorList) sliceNodes(spec object.Value, p *fielderrors.Location) {
	var set []string
	if node := spec.At("nodeName"); node.Len() > 0 {
		set = append(set, "`nodeName`")
		f.subdomain(p.To("nodeName"), node.Str())
	} else if !node.IsNull() {
		f.Invalid(p.To("nodeName"), "", "must be either unset or set to a non-empty string")
	}
	if selector := spec.At("nodeSelector"); !selector.IsNull() {
		set = append(set, "`nodeSelector`")
		f.nodeSelector(selector, false, p.To("nodeSelector"))
		if terms := selector.At("nodeSelectorTerms"); terms.Len() != 1 {
			f.Invalid(p.To("nodeSelector").To("nodeSelectorTerms"), goForm{terms, nodeSelectorTermFields},
				"must have exactly one node selector term")
		}
	}
	for _, key := range [...]string{"allNodes", "perDeviceNodeSelection"} {
		if v := spec.At(key); v.Bool() {
			set = append(set, "`"+key+"`")
		} else if !v.IsNull() {
			f.Invalid(p.To(key), false, unsetOrTrue)
		}
	}
	f.oneChoice(set, oneNodeChoice, p)
}

func (f *errorList) oneChoice(set []string, demand string, p *fielderrors.Location) {
	switch len(set) {
	case 0:
		f.Required(p, demand)
	case 1:
	default:
		f.Invalid(p, "{"+strings.Join(set, ", ")+"}", demand+", but multiple fields are set")
	}
}

func anyDevice(devices object.Value, matches func(device object.Value) bool) bool {
	for _, device := range devices.Items() {
		if matches(device) {
			return true
		}
	}
	return false
}

func consumesCounters(device object.Value) bool { return length(device, "consumesCounters") > 0 }

func isAdvanced(device object.Value) bool {
	if length(device, "taints") > 0 || consumesCounters(device) {
		return true
	}
	for _, m := range device.At("attributes").Members() {
		if has(m.Value, "bools") || has(m.Value, "ints") || has(m.Value, "strings") || has(m.Value, "versions") {
			return true
		}
	}
	return false
}

// deviceOf finds a device of the old slice; null if it has no such device.
func deviceOf(spec object.Value, name string) object.Value {
	for _, device := range spec.At("devices").Items() {
		if text(device, "name") == name {
			return device
		}
	}
	return object.Nil
}

// counters checks the counters of a set, and those that a device takes from one. Generated rules have them at declared.
func (f *errorList) counters(counters object.Value, p, declared *fielderrors.Location) {
	if counters.Len() == 0 {
		f.Required(declared, "")
		return
	}
	f.tooMany(counters, maxCounters, p)
	for _, m := range counters.Members() {
		f.shortName(declared, m.Key)
	}
}

// basic is the place of a device's fields for generated rules: in v1beta1 they are in its member basic.
func (f *errorList) basic(p *fielderrors.Location) *fielderrors.Location {
	if f.v1beta1 {
		return p.To("basic")
	}
	return p
}

func (f *errorList) device(device, old object.Value, nodes bool, p *fielderrors.Location) {
	declared := f.basic(p)
	f.label(p.To("name"), text(device, "name"))
	attributes, capacity := device.At("attributes"), device.At("capacity")
	if n := attributes.Len() + capacity.Len(); n > maxDeviceNames {
		f.Invalid(p, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", maxDeviceNames))
	}
	values := 0
	for _, m := range attributes.Members() {
		n := length(m.Value, "bools") + length(m.Value, "ints") + length(m.Value, "strings") + length(m.Value,
			"versions")
		values += max(1, n)
	}
	if values > maxDeviceValues {
		f.Invalid(p, values, fmt.Sprintf("the total number of attribute values must not exceed %d", maxDeviceValues))
	}
	for _, m := range attributes.Members() {
		f.attributeName(m.Key, p.To("attributes"))
		f.deviceAttribute(m.Value, m.Key, p.To("attributes"), declared.To("attributes"))
	}
	if !alike(old.At("capacity"), capacity, "capacity", true) {
		for _, m := range capacity.Members() {
			f.attributeName(m.Key, p.To("capacity"))
			f.deviceCapacity(m.Value, truth(device, "allowMultipleAllocations"), p.To("capacity").Key(shortened(m.Key)))
		}
	}
	taints := device.At("taints")
	if at := p.To("taints"); !same(old.At("taints"), taints) {
		tooMany := f.tooMany(taints, maxDeviceTaints, at)
		for i, taint := range taints.Items() {
			f.oneOf(declared.To("taints").Item(i).To("effect"), text(taint, "effect"), deviceEffects)
			if !tooMany {
				f.deviceTaintLabel(taint, at.Item(i))
			}
		}
	}
	f.consumedCounters(device.At("consumesCounters"), p.To("consumesCounters"), declared.To("consumesCounters"))
	f.deviceNodes(device, nodes, p)
	f.bindingConditions(device, p, declared)
	const resources = "nodeAllocatableResources"
	f.deviceNodeResources(device.At(resources), capacity, p.To(resources), declared.To(resources))
}

// shortened is a key in the form in which paths print it: truncated to the length of a name, with dots for the omitted
// part.
func shortened(key string) string {
	if len(key) <= maxAttributeKey {
		return key
	}
	const dots = "..."
	behind := (maxAttributeKey - len(dots)) / 2
	return key[:maxAttributeKey-len(dots)-behind] + dots + key[len(key)-behind:]
}

func (f *errorList) consumedCounters(consumed object.Value, p, declared *fielderrors.Location) {
	if f.tooMany(consumed, maxConsumedSets, declared) {
		return
	}
	for i, c := range consumed.Items() {
		p, declared := p.Item(i), declared.Item(i)
		f.requiredShortName(declared.To("counterSet"), text(c, "counterSet"))
		f.counters(c.At("counters"), p.To("counters"), declared.To("counters"))
		groups, at := c.At("compatibilityGroups"), declared.To("compatibilityGroups")
		if f.tooMany(groups, maxCompatibilityGroups, at) {
			continue
		}
		for i, group := range groups.Items() {
			f.shortName(at.Item(i), group.Str())
		}
		f.unique(groups, itself, at)
	}
	f.uniqueItems(consumed, "counterSet", declared, members("counterSet", "counters"))
}

// deviceNodes checks the selection of nodes that can use a device, if each device of the slice has its own.
func (f *errorList) deviceNodes(device object.Value, each bool, p *fielderrors.Location) {
	node, selector, all := device.At("nodeName"), device.At("nodeSelector"), device.At("allNodes")
	if !each {
		if !node.IsNull() || !selector.IsNull() || !all.IsNull() {
			f.Invalid(p, nil,
				"`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"+
					" in the ResourceSlice spec")
		}
		return
	}
	var set []string
	if node.Len() > 0 {
		set = append(set, "`nodeName`")
		f.subdomain(p.To("nodeName"), node.Str())
	} else if !node.IsNull() {
		f.Invalid(p.To("nodeName"), "", "must not be empty")
	}
	if !selector.IsNull() {
		set = append(set, "`nodeSelector`")
		f.nodeSelector(selector, false, p.To("nodeSelector"))
	}
	if all.Bool() {
		set = append(set, "`allNodes`")
	} else if !all.IsNull() {
		f.Invalid(p.To("allNodes"), false, unsetOrTrue)
	}
	if len(set) > 1 {
		f.Invalid(p, "{"+strings.Join(set, ", ")+"}", oneDeviceChoice)
	} else {
		f.oneChoice(set, oneDeviceChoice, p)
	}
}

// bindingConditions checks the conditions that a claim waits for before a pod is bound, and the conditions that report
// a failure.
func (f *errorList) bindingConditions(v object.Value, p, declared *fielderrors.Location) {
	const good, bad = "bindingConditions", "bindingFailureConditions"
	for _, key := range [...]string{good, bad} {
		conditions := v.At(key)
		if !f.tooMany(conditions, maxBindingConditions, declared.To(key)) {
			for i, condition := range conditions.Items() {
				f.qualified(p.To(key).Item(i), condition.Str())
			}
		}
		f.unique(conditions, itself, p.To(key))
	}
	for i, condition := range v.At(bad).Items() {
		if contains(v.At(good), condition.Str()) {
			f.Invalid(p.To(bad).Item(i), condition.Str(),
				"bindingFailureConditions must not overlap with bindingConditions")
		}
	}
	if length(v, good) == 0 && length(v, bad) > 0 {
		f.Invalid(p.To(good), fielderrors.Show(object.Nil),
			"bindingConditions are required to use bindingFailureConditions")
	}
	if length(v, bad) == 0 && length(v, good) > 0 {
		f.Invalid(p.To(bad), fielderrors.Show(object.Nil),
			"bindingFailureConditions are required to use bindingConditions")
	}
}

func (f *errorList) skippedOperations(operations object.Value, p *fielderrors.Location) {
	if contains(operations, "NodePrepareResources") && !contains(operations, "NodeUnprepareResources") &&
		!contains(operations, "*") {
		f.Invalid(p, fielderrors.Show(operations),
			"NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped")
	}
	for i, operation := range operations.Items() {
		f.only(p.Item(i), operation.Str(), nodeOperations)
	}
	var names nameSet
	for i, operation := range operations.Items() {
		if names.add(operation.Str()) {
			f.Duplicate(p.Item(i), fielderrors.Word(operation.Str()))
		}
	}
}

// partitionType checks the attribute with the type of a device that is a partition of another one.
func (f *errorList) partitionType(spec object.Value, p *fielderrors.Location) {
	attribute := spec.At("partitionTypeAttribute")
	if attribute.IsNull() {
		return
	}
	name := attribute.Str()
	f.declaredAttributeName(name, p.To("partitionTypeAttribute"))
	if !anyDevice(spec.At("devices"), consumesCounters) {
		f.Invalid(p.To("partitionTypeAttribute"), name,
			"may only be set on a slice which declares devices that consume counters")
		return
	}
	var check errorList
	if check.attributeName(name, nil); len(check.List) > 0 || !strings.Contains(name, "/") {
		return // no device has such an attribute
	}
	bare, _ := strings.CutPrefix(name, text(spec, "driver")+"/")
	for i, device := range spec.At("devices").Items() {
		if !consumesCounters(device) {
			continue
		}
		at := p.To("devices").Item(i).To("attributes").Key(name)
		attributes := device.At("attributes")
		value, ok := attributes.Get(name)
		if !ok {
			value, ok = attributes.Get(bare)
		}
		switch {
		case !ok:
			f.Required(at, "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set")
		case !has(value, "string"):
			f.Invalid(at, goForm{value, deviceAttributeFields},
				"must be a string value because `partitionTypeAttribute` names this attribute")
		}
	}
}

// attributeName demands a name that may have the domain of a driver before it.
func (f *errorList) attributeName(name string, p *fielderrors.Location) {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 1:
		f.identifier(parts[0], p)
	case 2:
		if parts[0] == "" {
			f.Invalid(p, "", "the domain must not be empty")
		} else {
			f.csiDriverName(p, parts[0])
		}
		if parts[1] == "" {
			f.Invalid(p, "", "the name must not be empty")
		} else {
			f.identifier(parts[1], p)
		}
	}
}

// declaredAttributeName demands a name with the domain of a driver, with the messages of generated rules.
func (f *errorList) declaredAttributeName(name string, p *fielderrors.Location) {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 1:
		f.identifier(parts[0], p)
		f.Invalid(p, name, "a fully qualified name must be a domain and a name separated by a slash")
	case 2:
		if parts[0] == "" {
			f.Invalid(p, "", "prefix must not be empty")
		} else {
			if len(parts[0]) > maxDriverName {
				f.TooLong(p, maxDriverName)
			}
			for _, detail := range objectmeta.LongNameErrors(parts[0]) {
				f.Invalid(p, parts[0], "prefix: "+detail)
			}
		}
		if parts[1] == "" {
			f.Invalid(p, "", "name must not be empty")
		} else {
			f.identifier(parts[1], p)
		}
	}
}

func (f *errorList) identifier(id string, p *fielderrors.Location) {
	if len(id) > maxDeviceID {
		f.TooLong(p, maxDeviceID)
	}
	f.Each(p, id, content.IsCIdentifier(id))
}

// deviceAttributeFields are the fields of an attribute under their Go names.
var deviceAttributeFields = []goField{
	{name: "IntValue", member: "int"}, {name: "BoolValue", member: "bool"}, {name: "StringValue", member: "string"},
	{name: "VersionValue", member: "version"}, {name: "IntValues", member: "ints"},
	{name: "BoolValues", member: "bools"},
	{name: "StringValues", member: "strings"}, {name: "VersionValues", member: "versions"},
}

// attributeMembers are the members of an attribute, exactly one of which is set.
var attributeMembers = []string{"int", "bool", "string", "version", "ints", "bools", "strings", "versions"}

func (f *errorList) deviceAttribute(attribute object.Value, key string, p, declared *fielderrors.Location) {
	at := p.Key(shortened(key))
	for _, member := range attributeMembers {
		v := attribute.At(member)
		f.deviceValue(v, member == "version", at.To(member))
		if v.Kind() == object.List && v.Len() == 0 {
			f.Invalid(at.To(member), v, "must not be empty if specified")
		}
		for i, item := range v.Items() {
			f.deviceValue(item, member == "versions", at.To(member).Item(i))
		}
	}
	// Generated rules do not shorten the key. If it is long, the reference does not recognize the errors of generated
	// and other rules as duplicates, and reports both.
	if set := f.union(attribute, attributeMembers, declared.Key(key)); len(set) == 0 && len(key) > maxAttributeKey {
		f.Invalid(at, "", oneDeviceValue)
	} else if len(set) > 1 && len(key) > maxAttributeKey {
		f.Invalid(at, goForm{attribute, deviceAttributeFields}, oneDeviceValue)
	}
}

// union demands that exactly one of several members is set, with the messages of generated rules, and returns those
// that are set.
func (f *errorList) union(v object.Value, of []string, p *fielderrors.Location) (set []string) {
	for _, member := range of {
		if has(v, member) {
			set = append(set, member)
		}
	}
	if supported := "`" + strings.Join(of, "`, `") + "`"; len(set) == 0 {
		f.Invalid(p, "", "must specify one of: "+supported)
	} else if len(set) > 1 {
		f.Invalid(p, "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+supported)
	}
	return set
}

// deviceValue checks one value of an attribute: a text must not be too long, and a version must be valid.
func (f *errorList) deviceValue(v object.Value, version bool, p *fielderrors.Location) {
	if v.Kind() != object.String {
		return
	}
	if version && !semantic.MatchString(v.Str()) {
		f.Invalid(p, v.Str(), "must be a string compatible with semver.org spec 2.0.0")
	}
	if v.Len() > maxDeviceValue {
		f.TooLong(p, maxDeviceValue)
	}
}

// deviceCapacity checks the amounts of a capacity that may be requested, if several claims may share the device.
func (f *errorList) deviceCapacity(capacity object.Value, shared bool, p *fielderrors.Location) {
	policy, at := capacity.At("requestPolicy"), p.To("requestPolicy")
	if policy.IsNull() {
		return
	}
	if !shared {
		f.Forbidden(at, "allowMultipleAllocations must be true")
		return
	}
	limit := quantity(capacity.At("value"))
	values, valid := policy.At("validValues"), policy.At("validRange")
	initial := policy.At("default")
	switch {
	case values.Len() > 0 && !valid.IsNull():
		f.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)
	case values.Len() > 0 && initial.IsNull():
		f.Required(at.To("default"), "required when validValues is defined")
	case values.Len() > 0:
		f.validValues(values, quantity(initial), limit, at.To("validValues"))
	case !valid.IsNull() && initial.IsNull():
		f.Required(at.To("default"), "required when validRange is defined")
	case !valid.IsNull():
		f.validRange(valid, quantity(initial), limit, at.To("validRange"))
	}
}

func (f *errorList) validValues(values object.Value, initial, limit resource.Quantity, p *fielderrors.Location) {
	items := make([]resource.Quantity, values.Len())
	for i, v := range values.Items() {
		items[i] = quantity(v)
		if i > 0 && items[i-1].Cmp(items[i]) > 0 {
			f.Invalid(p.Item(i), items[i].String(), "values must be sorted in ascending order")
		}
	}
	if f.tooMany(values, maxRequestOptions, p) {
		f.Invalid(p, initial.String(), "default value is not valid according to the requestPolicy")
		return
	}
	found := false
	for i, q := range items {
		if q.Cmp(limit) > 0 {
			f.Invalid(p.Item(i), q.String(), "option is larger than capacity value: "+limit.String())
		}
		found = found || q.Cmp(initial) == 0
	}
	var names nameSet
	for i, q := range items {
		if key := fmt.Sprint(q.Value()); names.add(key) {
			f.Duplicate(p.Item(i), key)
		}
	}
	if !found {
		f.Invalid(p, initial.String(), "default value is not valid according to the requestPolicy")
	}
}

func (f *errorList) validRange(valid object.Value, initial, limit resource.Quantity, p *fielderrors.Location) {
	if !has(valid, "min") {
		f.Required(p.To("min"), "required when validRange is defined")
		return
	}
	low, high, step := quantity(valid.At("min")), quantity(valid.At("max")), quantity(valid.At("step"))
	if low.Cmp(limit) > 0 {
		f.Invalid(p.To("min"), low.String(), "min is larger than capacity value: "+limit.String())
	}
	if initial.Cmp(low) < 0 {
		f.Invalid(p.To("default"), initial.String(), "default is less than min: "+low.String())
	}
	if has(valid, "max") {
		if low.Cmp(high) > 0 {
			f.Invalid(p.To("max"), low.String(), "min is larger than max: "+high.String())
		}
		if high.Cmp(limit) > 0 {
			f.Invalid(p.To("max"), high.String(), "max is larger than capacity value: "+limit.String())
		}
		if initial.Cmp(high) > 0 {
			f.Invalid(p.To("default"), initial.String(), "default is more than max: "+high.String())
		}
	}
	switch {
	case !has(valid, "step"):
		return
	case step.Sign() <= 0:
		f.Invalid(p.To("step"), step.String(), notPositive)
		return
	}
	next := low.DeepCopy()
	if next.Add(step); next.Cmp(limit) > 0 {
		f.Invalid(p.To("step"), step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s",
			next.String(), limit.String()))
	}
	usable := f.wholeNumber(initial, p.To("default"))
	usable = f.wholeNumber(low, p.To("min")) && usable
	usable = f.wholeNumber(high, p.To("max")) && usable // zero if it is absent
	if usable = f.wholeNumber(step, p.To("step")) && usable; !usable {
		return
	}
	f.multiple(initial, low, step, p.To("step"))
	if has(valid, "max") {
		f.multiple(high, low, step, p.To("step"))
	}
}

// wholeNumber demands a quantity from 0 to the largest int64, and says whether it is one.
func (f *errorList) wholeNumber(q resource.Quantity, p *fielderrors.Location) bool {
	switch {
	case q.Sign() < 0:
		f.Invalid(p, q.String(), fielderrors.NotNegative)
	case q.CmpInt64(math.MaxInt64) > 0:
		f.Invalid(p, q.String(), "must not be larger than 9223372036854775807")
	default:
		return true
	}
	return false
}

func (f *errorList) multiple(q, low, step resource.Quantity, p *fielderrors.Location) {
	if (q.Value()-low.Value())%step.Value() != 0 {
		f.Invalid(p, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", step.String(),
			low.String()))
	}
}

// deviceNodeResources checks the node's resources that a device uses up.
func (f *errorList) deviceNodeResources(resources, capacity object.Value, p, declared *fielderrors.Location) {
	for _, m := range resources.Members() {
		p, declared := p.Key(m.Key), declared.Key(m.Key)
		if m.Key != "cpu" && m.Key != "memory" && !strings.HasPrefix(m.Key, "hugepages-") {
			f.Invalid(p, fielderrors.Word(m.Key), "must be a node allocatable resource name")
		}
		mapping, overhead := m.Value.At("mapping"), m.Value.At("overhead")
		if mapping.IsNull() && overhead.IsNull() {
			f.Required(p, "at least one of mapping or overhead must be set")
		}
		if !mapping.IsNull() {
			f.union(mapping, mappingMembers, declared.To("mapping"))
			f.nodeMapping(mapping, capacity, p.To("mapping"))
		}
		if overhead.IsNull() {
			continue
		}
		if !has(overhead, "perPod") && !has(overhead, "perContainer") {
			f.Invalid(p.To("overhead"), "", "at least one of perPod or perContainer must be set")
		}
		for _, key := range [...]string{"perPod", "perContainer"} {
			if q := quantity(overhead.At(key)); q.Sign() < 0 {
				f.Invalid(p.To("overhead").To(key), q.String(), "must be non-negative")
			}
		}
	}
}

// mappingMembers are the members of a mapping, exactly one of which is set.
var mappingMembers = []string{"capacityKey", "deviceMultiplier"}

func (f *errorList) nodeMapping(mapping, capacity object.Value, p *fielderrors.Location) {
	key, times, device := mapping.At("capacityKey"), mapping.At("capacityMultiplier"), mapping.At("deviceMultiplier")
	if !key.IsNull() {
		if key.Len() == 0 {
			f.Invalid(p.To("capacityKey"), "", "capacityKey must not be an empty string")
		} else if !has(capacity, key.Str()) {
			f.NotFound(p.To("capacityKey"), fielderrors.Word(key.Str()))
		}
		if q := quantity(times); times.IsNull() {
			f.Required(p.To("capacityMultiplier"), "capacityMultiplier is required when capacityKey is set")
		} else if q.Sign() <= 0 {
			f.Invalid(p.To("capacityMultiplier"), q.String(), "must be positive")
		}
	} else if !times.IsNull() {
		f.Required(p.To("capacityKey"), "capacityKey is required when capacityMultiplier is set")
	}
	if q := quantity(device); !device.IsNull() && q.Sign() <= 0 {
		f.Invalid(p.To("deviceMultiplier"), q.String(), "must be positive")
	}
}
