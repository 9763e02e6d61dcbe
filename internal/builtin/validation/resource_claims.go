package validation

import (
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/cel"
	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// The rules of ResourceClaim, ResourceClaimTemplate, DeviceClass and DeviceTaintRule.

const (
	maxDeviceRequests   = 32
	maxDeviceItems      = 32 // selectors, constraints and configurations
	maxSubRequests      = 8
	maxReservations     = 256
	maxAllocationConfig = 2 * maxDeviceItems // of the class and of the claim
	maxDeviceConditions = 8
	maxDeviceExpression = 10 << 10
	maxDeviceParameters = 10 << 10
	maxDeviceAddresses  = 16
	maxInterfaceName    = 256
	maxHardwareAddress  = 128
	maxRuleConditions   = 8
	notARequest         = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)

var (
	allocationModes = []string{"All", "ExactCount"}
	deviceOperators = []string{"Equal", "Exists"}
	deviceEffects   = []string{"NoExecute", "NoSchedule", "None"}
	configSources   = []string{"FromClaim", "FromClass"}
	nodeOperations  = []string{"*", "NodePrepareResources", "NodeUnprepareResources"}
)

func resourceClaimCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)

	f.deviceClaimSpec(obj.At("spec"), (*fielderrors.Location)(nil).To("spec"))
}

func resourceClaimUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.fixed(obj, old, "spec")
}

// fixed is the error for a change of an immutable member.
func (f *errorList) fixed(obj, old object.Value, key string) {
	if !same(obj.At(key), old.At(key)) {
		f.changed((*fielderrors.Location)(nil).To(key))
	}
}

func claimTemplateCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)

	at := (*fielderrors.Location)(nil).To("spec")
	f.templateMeta(obj.At("spec", "metadata"), at.To("metadata"))
	f.deviceClaimSpec(obj.At("spec", "spec"), at.To("spec"))
}

func claimTemplateUpdate(f *errorList, obj, old object.Value) {
	claimTemplateCreate(f, obj)
	if !same(obj.At("spec"), old.At("spec")) {
		f.Invalid((*fielderrors.Location)(nil).To("spec"), goForm{obj.At("spec"), claimTemplateFields},
			fielderrors.Immutable)
	}
}

// tooMany says whether there are more items than a limit. In that case the items are not checked.
func (f *errorList) tooMany(items object.Value, limit int, p *fielderrors.Location) bool {
	if items.Len() > limit {
		f.TooMany(p, items.Len(), limit)
		return true
	}
	return false
}

// unique demands that no two items of a list have the same key.
func (f *errorList) unique(items object.Value, key func(item object.Value) string, p *fielderrors.Location) {
	var names nameSet
	for i, item := range items.Items() {
		if name := key(item); names.add(name) {
			f.Duplicate(p.Item(i), name)
		}
	}
}

// uniqueItems is unique for a list that is checked by generated rules: these print the whole item, with its members in
// this order.
func (f *errorList) uniqueItems(items object.Value, key string, p *fielderrors.Location, order []jsonField) {
	var names nameSet
	for i, item := range items.Items() {
		if names.add(text(item, key)) {
			f.Duplicate(p.Item(i), jsonForm{item, order})
		}
	}
}

// uniqueRequests is uniqueItems for the requests of a claim.
func (f *errorList) uniqueRequests(requests object.Value, p *fielderrors.Location) {
	if !f.v1beta1 {
		f.uniqueItems(requests, "name", p, requestOrder)
		return
	}
	var names nameSet
	for i, request := range requests.Items() {
		if names.add(text(request, "name")) {
			shown := request.With("deviceClassName", object.StringOf("")) // that of alternatives
			if exactly := request.At("exactly"); !exactly.IsNull() {
				shown = request.Edit(exactly.Members()) // the order has no exactly
			}
			f.Duplicate(p.Item(i), jsonForm{shown, flatRequestOrder})
		}
	}
}

// exactly is the place of a request's member exactly for generated rules: in v1beta1 its fields are in the request
// itself.
func (f *errorList) exactly(p *fielderrors.Location) *fielderrors.Location {
	if f.v1beta1 {
		return p
	}
	return p.To("exactly")
}

func named(item object.Value) string { return text(item, "name") }

func itself(item object.Value) string { return item.Str() }

func (f *errorList) deviceClaimSpec(spec object.Value, p *fielderrors.Location) {
	devices, at := spec.At("devices"), p.To("devices")
	c := deviceClaim{devices, new(uint64)}
	if requests, at := devices.At("requests"), at.To("requests"); !f.tooMany(requests, maxDeviceRequests, at) {
		for i, request := range requests.Items() {
			f.deviceRequest(request, c, at.Item(i))
		}
		f.uniqueRequests(requests, at)
	}
	if constraints, at := devices.At("constraints"), at.To("constraints"); !f.tooMany(constraints, maxDeviceItems, at) {
		for i, constraint := range constraints.Items() {
			f.deviceConstraint(constraint, c, at.Item(i))
		}
	}
	if configs, at := devices.At("config"), at.To("config"); !f.tooMany(configs, maxDeviceItems, at) {
		for i, config := range configs.Items() {
			f.requestRefs(config.At("requests"), c, at.Item(i).To("requests"))
			f.opaqueConfig(config, false, at.Item(i))
		}
	}
	if *c.computing > maxDeviceCost {
		f.Forbidden(at, "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit")
	}
}

// deviceClaim is spec.devices of a claim.
type deviceClaim struct {
	devices object.Value
	// computing is the cost of the attributes that it computes.
	computing *uint64
}

// has says whether a name is that of a request, or REQUEST/ALTERNATIVE for one of its alternatives.
func (c deviceClaim) has(name string) bool {
	first, second, sub := strings.Cut(name, "/")
	found := false
	for _, request := range c.devices.At("requests").Items() {
		if text(request, "name") != first {
			continue
		}
		// If several requests have the same name, the last one counts.
		found = !sub || slices.ContainsFunc(request.At("firstAvailable").Items(),
			func(r object.Value) bool { return text(r, "name") == second })
	}
	return found
}

// constrains says whether a constraint of the claim on this request names an attribute. The request may also be an
// alternative.
func (c deviceClaim) constrains(attribute, request string) bool {
	parent, _, _ := strings.Cut(request, "/")
	for _, constraint := range c.devices.At("constraints").Items() {
		name := constraint.At("matchAttribute")
		if name.IsNull() {
			name = constraint.At("distinctAttribute")
		}
		of := constraint.At("requests")
		if name.Str() == attribute && (of.Len() == 0 || contains(of, request) ||
			contains(of, parent)) {
			return true
		}
	}
	return false
}

func (f *errorList) deviceRequest(request object.Value, c deviceClaim, p *fielderrors.Location) {
	name := text(request, "name")
	f.label(p.To("name"), name)
	alternatives, exactly := request.At("firstAvailable"), request.At("exactly")
	switch {
	case alternatives.Len() == 0 && exactly.IsNull():
		f.Required(p, "exactly one of `exactly` or `firstAvailable` is required")
	case alternatives.Len() > 0 && !exactly.IsNull():
		f.Invalid(p, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
		f.declaredRequest(exactly, false, f.exactly(p))
		if at := p.To("firstAvailable"); !f.tooMany(alternatives, maxSubRequests, at) {
			for i, alternative := range alternatives.Items() {
				f.declaredRequest(alternative, true, at.Item(i))
			}
			f.uniqueItems(alternatives, "name", at, alternativeOrder)
		}
	case exactly.IsNull():
		at := p.To("firstAvailable")
		if f.tooMany(alternatives, maxSubRequests, at) {
			return
		}
		for i, alternative := range alternatives.Items() {
			sub := text(alternative, "name")
			f.label(at.Item(i).To("name"), sub)
			f.exactRequest(alternative, c, name+"/"+sub, at.Item(i), at.Item(i))
		}
		f.uniqueItems(alternatives, "name", at, alternativeOrder)
	default:
		f.exactRequest(exactly, c, name, p.To("exactly"), f.exactly(p))
	}
}

// declaredRequest checks a request after other errors, in which case the reference runs only the rules that it
// generates from its types.
func (f *errorList) declaredRequest(request object.Value, sub bool, p *fielderrors.Location) {
	if class := text(request, "deviceClassName"); sub && class == "" {
		f.Required(p.To("deviceClassName"), "")
	} else if sub {
		f.subdomain(p.To("deviceClassName"), class)
	}
	f.tooMany(request.At("selectors"), maxDeviceItems, p.To("selectors"))
	if mode := text(request, "allocationMode"); mode != "" { // no default is set beside alternatives in v1beta1
		f.only(p.To("allocationMode"), mode, allocationModes)
	}
	for i, toleration := range request.At("tolerations").Items() {
		f.declaredToleration(toleration, p.To("tolerations").Item(i))
	}
}

// declaredToleration checks a toleration by the generated rules.
func (f *errorList) declaredToleration(toleration object.Value, p *fielderrors.Location) {
	if key := text(toleration, "key"); key != "" {
		f.qualified(p.To("key"), key)
	}
	f.oneOf(p.To("operator"), text(toleration, "operator"), deviceOperators)
	if effect := text(toleration, "effect"); effect != "" {
		f.only(p.To("effect"), effect, deviceEffects)
	}
}

// exactRequest checks the fields that a request and an alternative share. Generated rules have it at declared.
func (f *errorList) exactRequest(request object.Value, c deviceClaim, name string, p, declared *fielderrors.Location) {
	if class := text(request, "deviceClassName"); class == "" {
		f.Required(p.To("deviceClassName"), "")
	} else {
		f.subdomain(p.To("deviceClassName"), class)
	}
	if selectors := request.At("selectors"); !f.tooMany(selectors, maxDeviceItems, declared.To("selectors")) {
		f.deviceSelectors(selectors, false, p.To("selectors"))
	}
	f.derivedAttributes(request.At("derivedAttributes"), c, name, p.To("derivedAttributes"),
		declared.To("derivedAttributes"))
	count := number(request, "count")
	switch mode := text(request, "allocationMode"); mode {
	case "All":
		if count != 0 {
			f.Invalid(p.To("count"), count, "must not be specified when allocationMode is 'All'")
		}
	case "ExactCount":
		f.positive(p.To("count"), count)
	case "": // generated rules leave it to the others
		f.Unsupported(p.To("allocationMode"), mode, allocationModes)
	default:
		f.Unsupported(declared.To("allocationMode"), mode, allocationModes)
	}
	f.deviceTolerations(request.At("tolerations"), p.To("tolerations"), declared.To("tolerations"))
}

func (f *errorList) deviceTolerations(tolerations object.Value, p, declared *fielderrors.Location) {
	for i, toleration := range tolerations.Items() {
		p := p.Item(i)
		f.declaredToleration(toleration, declared.Item(i))
		value := text(toleration, "value")
		switch text(toleration, "operator") {
		case "Exists":
			if value != "" {
				f.Invalid(p.To("value"), value, "must be empty for operator `Exists`")
			}
		case "Equal":
			f.Each(p.To("value"), value, objectmeta.LabelValueErrors(value))
		}
	}
}

// deviceSelectors checks selectors; stored ones have been compiled before, and are not checked again.
func (f *errorList) deviceSelectors(selectors object.Value, stored bool, p *fielderrors.Location) {
	for i, selector := range selectors.Items() {
		at := p.Item(i).To("cel")
		if !has(selector, "cel") {
			f.Required(at, "")
		} else if !stored {
			f.deviceExpression(text(selector.At("cel"), "expression"), false, at.To("expression"))
		}
	}
}

// maxDeviceCost limits the cost of an expression about devices, and that of all attributes that a claim computes.
const maxDeviceCost = 1000000

// deviceExpression checks an expression that selects devices, or that computes an attribute of one, and returns its
// cost.
func (f *errorList) deviceExpression(expression string, computes bool, p *fielderrors.Location) uint64 {
	if len(expression) > maxDeviceExpression {
		f.TooLong(p, maxDeviceExpression)
		return 0
	}
	fault, cost, err := cel.CheckDevice(expression, computes, cel.DeviceOptions{Latest: f.LatestExpressions,
		NotShared: !f.on(features.DRAConsumableCapacity), Lists: f.on(features.DRAListTypeAttributes),
		Unlisted: f.DevicesUnlisted})
	switch {
	case err != nil:
		f.List = append(f.List, internalError(f.Path(p), err))
	case fault != "":
		f.Invalid(p, expression, fault)
	case cost > maxDeviceCost:
		f.Forbidden(p, "too complex, exceeds cost limit")
	}
	return cost
}

// derivedAttributes checks the attributes that a request computes. If there are too many, the generated rules end, and
// the other rules continue.
func (f *errorList) derivedAttributes(attributes object.Value, c deviceClaim, request string,
	p, declared *fielderrors.Location) {
	tooMany := f.tooMany(attributes, maxDeviceItems, declared)
	for i, attribute := range attributes.Items() {
		p, declared := p.Item(i), declared.Item(i)
		name, expression := text(attribute, "name"), text(attribute, "expression")
		if name != "" && !c.constrains(name, request) {
			f.Invalid(p.To("name"), fielderrors.Word(name),
				"must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request")
		}
		if expression != "" {
			*c.computing += f.deviceExpression(expression, true, p.To("expression"))
		}
		if tooMany {
			continue
		}
		if name == "" {
			f.Required(declared.To("name"), "")
		} else {
			f.declaredAttributeName(name, declared.To("name"))
		}
		f.requiredText(declared.To("expression"), expression)
	}
	f.unique(attributes, named, p)
}

func (f *errorList) deviceConstraint(constraint object.Value, c deviceClaim, p *fielderrors.Location) {
	f.requestRefs(constraint.At("requests"), c, p.To("requests"))
	match, distinct := constraint.At("matchAttribute"), constraint.At("distinctAttribute")
	if match.IsNull() && distinct.IsNull() {
		f.Required(p, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
	}
	if !match.IsNull() {
		f.declaredAttributeName(match.Str(), p.To("matchAttribute"))
	}
	if !distinct.IsNull() {
		f.declaredAttributeName(distinct.Str(), p.To("distinctAttribute"))
	}
}

// requestRefs checks a list of names of requests.
func (f *errorList) requestRefs(names object.Value, c deviceClaim, p *fielderrors.Location) {
	if f.tooMany(names, maxDeviceRequests, p) {
		return
	}
	for i, name := range names.Items() {
		f.requestRef(name.Str(), c, p.Item(i))
	}
	f.unique(names, itself, p)
}

func (f *errorList) requestRef(name string, c deviceClaim, p *fielderrors.Location) {
	first, second, sub := strings.Cut(name, "/")
	if strings.Contains(second, "/") {
		f.Invalid(p, name, notARequest)
		return
	}
	f.label(p, first)
	if sub {
		f.label(p, second)
	}
	if !c.has(name) {
		f.Invalid(p, name, notARequest)
	}
}

// opaqueConfig checks the driver-specific part of a configuration.
func (f *errorList) opaqueConfig(config object.Value, stored bool, p *fielderrors.Location) {
	opaque := config.At("opaque")
	if opaque.IsNull() {
		f.Required(p.To("opaque"), "")
		return
	}
	f.declaredDriverName(p.To("opaque").To("driver"), text(opaque, "driver"))
	f.rawObject(opaque.At("parameters"), stored, p.To("opaque").To("parameters"))
}

// rawObject demands an object of any content.
func (f *errorList) rawObject(raw object.Value, stored bool, p *fielderrors.Location) {
	switch {
	case raw.IsNull():
		f.Required(p, "")
	case !stored && len(object.AppendJSON(nil, raw)) > maxDeviceParameters:
		f.TooLong(p, maxDeviceParameters)
	case raw.Kind() != object.Map:
		f.Invalid(p, "<value omitted>", "must be a valid JSON object")
	}
}

func resourceClaimStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	status, previous, at := obj.At("status"), old.At("status"), (*fielderrors.Location)(nil).To("status")
	c := deviceClaim{devices: obj.At("spec", "devices")}
	reserved := status.At("reservedFor")
	if p := at.To("reservedFor"); !f.tooMany(reserved, maxReservations, p) {
		for i, user := range reserved.Items() {
			for _, key := range [...]string{"resource", "name", "uid"} {
				f.requiredText(p.Item(i).To(key), text(user, key))
			}
		}
		f.uniqueItems(reserved, "uid", p, members("apiGroup", "resource", "name", "uid"))
	}
	allocation := status.At("allocation")
	f.deviceStatuses(status.At("devices"), allocation, at.To("devices"))
	if reserved.Len() > 0 {
		if allocation.IsNull() {
			f.Forbidden(at.To("reservedFor"), "may not be specified when `allocated` is not set")
		} else if has(obj.At("metadata"), "deletionTimestamp") && !subset(reserved, previous.At("reservedFor")) {
			f.Forbidden(at.To("reservedFor"),
				"new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
		}
	}
	switch before := previous.At("allocation"); {
	case allocation.IsNull():
	case before.IsNull():
		f.allocation(allocation, c, at.To("allocation"))
	case !same(allocation, before):
		f.Invalid(at.To("allocation"), fielderrors.Show(object.Nil), "field cannot be modified once set")
	}
}

func subset(items, of object.Value) bool {
	for _, item := range items.Items() {
		if !slices.ContainsFunc(of.Items(), func(v object.Value) bool { return object.Equal(v, item) }) {
			return false
		}
	}
	return true
}

// sharedDevice names an allocated device, or a share of one.
type sharedDevice struct{ driver, pool, device, share string }

func sharedDeviceOf(v object.Value) sharedDevice {
	return sharedDevice{text(v, "driver"), text(v, "pool"), text(v, "device"), text(v, "shareID")}
}

var (
	sharedDeviceFields = []goField{{name: "Driver", member: "driver"}, {name: "Pool", member: "pool"},
		{name: "Device", member: "device"}, {name: "ShareID", member: "shareID", zero: `""`}}
	deviceStatusOrder = slices.Concat(members("driver", "pool", "device", "shareID"),
		[]jsonField{{"conditions", members(conditionOrder...)}}, members("data"),
		[]jsonField{{"networkData", members("interfaceName", "ips", "hardwareAddress")}})
)

func (f *errorList) deviceStatuses(devices, allocation object.Value, p *fielderrors.Location) {
	for i, device := range devices.Items() {
		p := p.Item(i)
		f.csiDriverName(p.To("driver"), text(device, "driver"))
		f.poolName(p.To("pool"), text(device, "pool"))
		f.label(p.To("device"), text(device, "device"))
		f.shareID(p.To("shareID"), device.At("shareID"))
		if !slices.ContainsFunc(allocation.At("devices", "results").Items(),
			func(r object.Value) bool { return sharedDeviceOf(r) == sharedDeviceOf(device) }) {
			f.Invalid(p, goForm{device, sharedDeviceFields}, "must be an allocated device in the claim")
		}
		conditions := device.At("conditions")
		f.tooMany(conditions, maxDeviceConditions, p.To("conditions"))
		f.conditions(conditions, p.To("conditions"))
		if data := device.At("data"); !data.IsNull() {
			f.rawObject(data, false, p.To("data"))
		}
		f.networkData(device.At("networkData"), p.To("networkData"))
	}
	met := map[sharedDevice]bool{}
	for i, device := range devices.Items() {
		if met[sharedDeviceOf(device)] {
			f.Duplicate(p.Item(i), jsonForm{device, deviceStatusOrder})
		}
		met[sharedDeviceOf(device)] = true
	}
}

func (f *errorList) networkData(data object.Value, p *fielderrors.Location) {
	if length(data, "interfaceName") > maxInterfaceName {
		f.TooLong(p.To("interfaceName"), maxInterfaceName)
	}
	if length(data, "hardwareAddress") > maxHardwareAddress {
		f.TooLong(p.To("hardwareAddress"), maxHardwareAddress)
	}
	addresses, at := data.At("ips"), p.To("ips")
	if f.tooMany(addresses, maxDeviceAddresses, at) {
		return
	}
	for i, address := range addresses.Items() {
		f.List = append(f.List, utilvalidation.IsValidInterfaceAddress(f.Path(at.Item(i)), address.Str())...)
	}
	f.unique(addresses, itself, at)
}

// shareID demands a UUID in its canonical form, if it is set.
func (f *errorList) shareID(p *fielderrors.Location, v object.Value) {
	if !v.IsNull() {
		f.lowercaseUUID(p, v.Str())
	}
}

// lowercaseUUID demands a UUID, with the message of generated rules.
func (f *errorList) lowercaseUUID(p *fielderrors.Location, id string) {
	good := len(id) == 36
	for i := 0; good && i < len(id); i++ {
		switch i {
		case 8, 13, 18, 23:
			good = id[i] == '-'
		default:
			good = '0' <= id[i] && id[i] <= '9' || 'a' <= id[i] && id[i] <= 'f'
		}
	}
	if !good {
		f.Invalid(p, id, "must be a lowercase UUID in 8-4-4-4-12 format")
	}
}

func (f *errorList) allocation(allocation object.Value, c deviceClaim, p *fielderrors.Location) {
	devices, at := allocation.At("devices"), p.To("devices")
	if results, at := devices.At("results"), at.To("results"); !f.tooMany(results, maxDeviceRequests, at) {
		for i, result := range results.Items() {
			p := at.Item(i)
			f.requestRef(text(result, "request"), c, p.To("request"))
			f.declaredDriverName(p.To("driver"), text(result, "driver"))
			f.declaredPoolName(p.To("pool"), text(result, "pool"))
			f.label(p.To("device"), text(result, "device"))
			f.bindingConditions(result, p, p)
			f.deviceTolerations(result.At("tolerations"), p.To("tolerations"), p.To("tolerations"))
			f.shareID(p.To("shareID"), result.At("shareID"))
			f.skippedOperations(result.At("skipNodeOperations"), p.To("skipNodeOperations"))
		}
	}
	if configs, at := devices.At("config"), at.To("config"); !f.tooMany(configs, maxAllocationConfig, at) {
		for i, config := range configs.Items() {
			p := at.Item(i)
			f.oneOf(p.To("source"), text(config, "source"), configSources)
			f.requestRefs(config.At("requests"), c, p.To("requests"))
			f.opaqueConfig(config, false, p)
		}
	}
	if selector := allocation.At("nodeSelector"); !selector.IsNull() {
		f.nodeSelector(selector, false, p.To("nodeSelector"))
	}
}

func deviceClassCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.deviceClass(obj.At("spec"), object.Nil)
}

func deviceClassUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.deviceClass(obj.At("spec"), old.At("spec"))
}

// deviceClass checks a class. Unchanged selectors and configurations have been checked before.
func (f *errorList) deviceClass(spec, old object.Value) {
	at := (*fielderrors.Location)(nil).To("spec")
	if selectors, at := spec.At("selectors"), at.To("selectors"); !f.tooMany(selectors, maxDeviceItems, at) {
		f.deviceSelectors(selectors, same(selectors, old.At("selectors")), at)
	}
	stored := same(spec.At("config"), old.At("config"))
	if configs, at := spec.At("config"), at.To("config"); !f.tooMany(configs, maxDeviceItems, at) {
		for i, config := range configs.Items() {
			f.opaqueConfig(config, stored, at.Item(i))
		}
	}
	if name := spec.At("extendedResourceName"); !name.IsNull() {
		f.declaredResourceName(name.Str(), at.To("extendedResourceName"))
	}
}

// declaredResourceName demands the name of an extended resource, with the messages of generated rules.
func (f *errorList) declaredResourceName(name string, p *fielderrors.Location) {
	const quota = "requests."
	if !strings.Contains(name, "/") {
		f.Invalid(p, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'")
	} else if strings.Contains(name, "kubernetes.io/") {
		f.Invalid(p, name, `must not have "kubernetes.io/" domain`)
	}
	if strings.HasPrefix(name, quota) {
		f.Invalid(p, name, `must not have "requests." prefix`)
	}
	f.Each(p, name, objectmeta.LabelKeyErrors(quota+name))
}

func taintRuleCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.taintRule(obj.At("spec"), object.Nil)
}

func taintRuleUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.taintRule(obj.At("spec"), old.At("spec", "taint"))
}

func (f *errorList) taintRule(spec, oldTaint object.Value) {
	at := (*fielderrors.Location)(nil).To("spec")
	selector, in := spec.At("deviceSelector"), at.To("deviceSelector")
	if has(selector, "driver") {
		f.csiDriverName(in.To("driver"), text(selector, "driver"))
	}
	if has(selector, "pool") {
		f.poolName(in.To("pool"), text(selector, "pool"))
	}
	if has(selector, "device") {
		f.label(in.To("device"), text(selector, "device"))
	}
	f.deviceTaint(spec.At("taint"), oldTaint, at.To("taint"))
}

// deviceTaint checks a taint; an effect that is stored already is accepted.
func (f *errorList) deviceTaint(taint, old object.Value, p *fielderrors.Location) {
	f.deviceTaintLabel(taint, p)
	if effect := text(taint, "effect"); old.IsNull() || text(old, "effect") != effect {
		f.oneOf(p.To("effect"), effect, deviceEffects)
	}
}

func (f *errorList) deviceTaintLabel(taint object.Value, p *fielderrors.Location) {
	f.qualified(p.To("key"), text(taint, "key"))
	value := text(taint, "value")
	f.Each(p.To("value"), value, objectmeta.LabelValueErrors(value))
}

func taintRuleStatus(f *errorList, obj, _ object.Value) {
	conditions, at := obj.At("status", "conditions"), (*fielderrors.Location)(nil).To("status").To("conditions")
	f.conditions(conditions, at)
	f.tooMany(conditions, maxRuleConditions, at)
}
