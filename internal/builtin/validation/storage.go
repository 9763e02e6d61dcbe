package validation

import (
	"fmt"
	"strings"

	"plinth/object"
)

const (
	maxParameters      = 512
	maxParameterBytes  = 256 << 10
	maxAttachmentBytes = 256 << 10
	maxVolumeError     = 1024
	maxNodeID          = 256
	minUpdatePeriod    = 10
)

var (
	classReclaim     = []string{"Delete", "Retain"}
	bindingModes     = []string{"Immediate", "WaitForFirstConsumer"}
	fsGroupPolicies  = []string{"File", "None", "ReadWriteOnceWithFSType"}
	lifecycleModes   = []string{"Persistent", "Ephemeral"}
	mustSetOnDrivers = [...][2]string{{"attachRequired", "attachedRequired"}, {"podInfoOnMount", "podInfoOnMount"}, {"storageCapacity", "storageCapacity"}}
)

// provisioner demands the name of a driver.
func (f *faults) provisioner(p *place, name string) {
	if name == "" {
		f.required(p, "")
		return
	}
	f.qualifiedText(p, strings.ToLower(name))
}

func (f *faults) qualifiedText(p *place, s string) { f.each(p, s, qualifiedFaults(s)) }

func (f *faults) parameters(parameters object.Value, mayBeEmpty bool, p *place) {
	if parameters.Len() > maxParameters {
		f.tooLong(p, maxParameters)
		return
	}
	size := 0
	for _, m := range parameters.Members() {
		if m.Key == "" {
			f.invalid(p, m.Key, "field can not be empty.")
		}
		size += len(m.Key) + m.Value.Len()
	}
	if size > maxParameterBytes {
		f.tooLong(p, maxParameterBytes)
	}
	if !mayBeEmpty && parameters.Len() == 0 {
		f.required(p, "must contain at least one key/value pair")
	}
}

func storageClassCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var root *place
	f.provisioner(root.to("provisioner"), text(obj, "provisioner"))
	f.parameters(obj.At("parameters"), true, root.to("parameters"))
	if policy := text(obj, "reclaimPolicy"); policy != "" {
		f.only(root.to("reclaimPolicy"), policy, classReclaim)
	}
	if mode := obj.At("volumeBindingMode"); mode.IsNull() {
		f.required(root.to("volumeBindingMode"), "")
	} else {
		f.only(root.to("volumeBindingMode"), mode.Str(), bindingModes)
	}
	f.allowedTopologies(obj.At("allowedTopologies"), root.to("allowedTopologies"))
}

// allowedTopologies checks where volumes may be made.
func (f *faults) allowedTopologies(terms object.Value, p *place) {
	var before []map[string]map[string]bool
	for i, term := range terms.Items() {
		p := p.item(i).to("matchLabelExpressions")
		keys := map[string]map[string]bool{}
		for j, requirement := range term.At("matchLabelExpressions").Items() {
			p := p.item(j)
			key := text(requirement, "key")
			values := map[string]bool{}
			f.requiredList(p.to("values"), requirement.At("values"))
			for k, value := range requirement.At("values").Items() {
				if values[value.Str()] {
					f.duplicate(p.to("values").item(k), value.Str())
				}
				values[value.Str()] = true
			}
			f.qualified(p.to("key"), key)
			if _, again := keys[key]; again {
				f.duplicate(p.to("key"), key)
			}
			keys[key] = values
		}
		for _, other := range before {
			if sameTopology(keys, other) {
				f.duplicate(p, "")
			}
		}
		if len(keys) == 0 { // as many as there are terms stand for nothing in the reference's list
			f.duplicate(p, "")
		}
		before = append(before, keys)
	}
}

func sameTopology(a, b map[string]map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for key, values := range a {
		others, ok := b[key]
		if !ok || len(values) != len(others) {
			return false
		}
		for value := range values {
			if !others[value] {
				return false
			}
		}
	}
	return true
}

func storageClassUpdate(f *faults, obj, old object.Value) {
	storageClassCreate(f, obj)
	for _, key := range [...]string{"parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"} {
		if now, was := obj.At(key), old.At(key); !object.Equal(now, was) && !(blank(now) && blank(was)) {
			f.changed((*place)(nil).to(key))
		}
	}
}

func attachmentCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	f.declaredDriverName(p.to("attacher"), text(spec, "attacher"))
	f.subdomain(p.to("nodeName"), text(spec, "nodeName"))
	inline, volume := spec.At("source", "inlineVolumeSpec"), spec.At("source", "persistentVolumeName")
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case inline.IsNull() && volume.IsNull():
		f.required(p.to("source"), exactlyOne)
	case !inline.IsNull() && !volume.IsNull():
		f.forbidden(p.to("source"), exactlyOne)
	case !inline.IsNull():
		f.inlineVolume(inline, p.to("source").to("inlineVolumeSpec"))
	case volume.Len() == 0:
		f.required(p.to("source").to("persistentVolumeName"), "must specify non empty persistentVolumeName")
	}
	if !volume.IsNull() {
		f.subdomain((*place)(nil).to("spec.source.persistentVolumeName"), volume.Str())
	}
	status := obj.At("status")
	at := (*place)(nil).to("status")
	size := 0
	for _, m := range status.At("attachmentMetadata").Members() {
		size += len(m.Key) + m.Value.Len()
	}
	if size > maxAttachmentBytes {
		f.tooLong(at.to("attachmentMetadata"), maxAttachmentBytes)
	}
	for _, key := range [...]string{"attachError", "detachError"} {
		failure := status.At(key)
		if length(failure, "message") > maxVolumeError {
			f.tooLong(at.to(key).to("message"), maxVolumeError)
		}
		if code := number(failure, "errorCode"); code < 0 {
			f.within(at.to(key).to("errorCode"), code, 0, maxID)
		}
	}
}

func attachmentUpdate(f *faults, obj, old object.Value) {
	attachmentCreate(f, obj)
	if !same(obj.At("spec"), old.At("spec")) {
		f.changed((*place)(nil).to("spec"))
	}
}

func csiNodeCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var names seen
	for i, driver := range obj.At("spec", "drivers").Items() {
		p := (*place)(nil).to("spec").to("drivers").item(i)
		name, id := text(driver, "name"), text(driver, "nodeID")
		f.csiDriverName(p.to("name"), name)
		f.requiredText(p.to("nodeID"), id)
		if len(id) > maxNodeID {
			f.invalid(p.to("nodeID"), id, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		f.nonNegativeMembers(driver.At("allocatable"), p.to("allocatable"), "count")
		if names.add(name) {
			f.duplicate(p.to("name"), name)
		}
		var keys seen
		for _, item := range driver.At("topologyKeys").Items() {
			f.requiredText(p, item.Str())
			if keys.add(item.Str()) {
				f.duplicate(p, item.Str())
			}
			f.qualified(p, item.Str())
		}
	}
}

var csiNodeDriverFields = []goField{{name: "Name", member: "name", zero: `""`}, {name: "NodeID", member: "nodeID", zero: `""`},
	{name: "TopologyKeys", member: "topologyKeys"}, {name: "Allocatable"}}

func csiNodeUpdate(f *faults, obj, old object.Value) {
	csiNodeCreate(f, obj)
	for _, was := range old.At("spec", "drivers").Items() {
		for _, now := range obj.At("spec", "drivers").Items() {
			if text(was, "name") == text(now, "name") && !same(was.Without("allocatable"), now.Without("allocatable")) {
				f.invalid((*place)(nil).to("spec").to("drivers"), goForm{now, csiNodeDriverFields}, immutable)
			}
		}
	}
}

func csiDriverCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	for _, member := range mustSetOnDrivers {
		if !has(spec, member[0]) {
			f.required(p.to(member[1]), "")
		}
	}
	f.onlyIfSet(p.to("fsGroupPolicy"), spec.At("fsGroupPolicy"), fsGroupPolicies)
	f.tokenRequests(spec.At("tokenRequests"), p.to("tokenRequests"))
	for _, mode := range spec.At("volumeLifecycleModes").Items() {
		f.only(p.to("volumeLifecycleModes"), mode.Str(), lifecycleModes)
	}
	if !has(spec, "seLinuxMount") {
		f.required(p.to("seLinuxMount"), "")
	}
	if period := spec.At("nodeAllocatableUpdatePeriodSeconds"); !period.IsNull() && period.Int() < minUpdatePeriod {
		f.invalid(p.to("nodeAllocatableUpdatePeriodSeconds"), period.Int(), "must be greater than or equal to 10 seconds")
	}
	if secrets := spec.At("serviceAccountTokenInSecrets"); !secrets.IsNull() && length(spec, "tokenRequests") == 0 {
		f.invalid(p.to("serviceAccountTokenInSecrets"), secrets.Bool(), "serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
	if !has(spec, "preventPodSchedulingIfMissing") {
		f.required(p.to("preventPodSchedulingIfMissing"), "")
	}
}

func (f *faults) tokenRequests(requests object.Value, p *place) {
	var audiences seen
	for i, request := range requests.Items() {
		p := p.item(i)
		if audience := text(request, "audience"); audiences.add(audience) {
			f.duplicate(p.to("audience"), audience)
			continue
		}
		seconds := request.At("expirationSeconds")
		switch {
		case seconds.IsNull():
		case seconds.Int() < minTokenSeconds:
			f.invalid(p.to("expirationSeconds"), seconds.Int(), "may not specify a duration less than 10 minutes")
		case seconds.Int() > maxTokenSeconds:
			f.invalid(p.to("expirationSeconds"), seconds.Int(), "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func csiDriverUpdate(f *faults, obj, old object.Value) {
	csiDriverCreate(f, obj)
	for _, member := range [...][2]string{{"attachRequired", "attachedRequired"}, {"volumeLifecycleModes", "volumeLifecycleModes"}} {
		if now := obj.At("spec", member[0]); !same(now, old.At("spec", member[0])) {
			f.invalid((*place)(nil).to("spec").to(member[1]), show(now), immutable)
		}
	}
}

func capacityCreate(f *faults, obj object.Value) { f.capacity(obj, false) }

func (f *faults) capacity(obj object.Value, lenient bool) {
	f.qualifiedFinalizers(obj)
	var root *place
	f.labelSelector(obj.At("nodeTopology"), root.to("nodeTopology"), lenient)
	f.subdomain(root.to("storageClassName"), text(obj, "storageClassName"))
	if amount := quantity(obj.At("capacity")); amount.Sign() < 0 {
		f.invalid(root.to("capacity"), amount.String(), notNegative)
	}
}

func capacityUpdate(f *faults, obj, old object.Value) {
	var root *place
	f.capacity(obj, badLabelValue(old.At("nodeTopology", "matchExpressions")))
	if now := obj.At("nodeTopology"); !same(now, old.At("nodeTopology")) {
		f.invalid(root.to("nodeTopology"), show(now, selectorOrder...), immutable)
	}
	if now := text(obj, "storageClassName"); now != text(old, "storageClassName") {
		f.invalid(root.to("storageClassName"), now, immutable)
	}
}

func attributesClassCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var root *place
	f.provisioner(root.to("driverName"), text(obj, "driverName"))
	f.parameters(obj.At("parameters"), false, root.to("parameters"))
}

func attributesClassUpdate(f *faults, obj, old object.Value) {
	var root *place
	if text(obj, "driverName") != text(old, "driverName") {
		f.forbidden(root.to("driverName"), "updates to driverName are forbidden.")
	}
	if !object.Equal(obj.At("parameters"), old.At("parameters")) {
		f.forbidden(root.to("parameters"), "updates to parameters are forbidden.")
	}
	attributesClassCreate(f, obj)
}
