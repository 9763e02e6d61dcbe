package validation

import (
	"fmt"
	"math"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
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
	classReclaim    = []string{"Delete", "Retain"}
	bindingModes    = []string{"Immediate", "WaitForFirstConsumer"}
	fsGroupPolicies = []string{"File", "None", "ReadWriteOnceWithFSType"}
	lifecycleModes  = []string{"Persistent", "Ephemeral"}
)

// provisioner demands the name of a driver.
func (f *errorList) provisioner(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	f.qualifiedText(p, strings.ToLower(name))
}

func (f *errorList) qualifiedText(p *fielderrors.Location, s string) {
	f.Each(p, s, objectmeta.LabelKeyErrors(s))
}

func (f *errorList) parameters(parameters object.Value, mayBeEmpty bool, p *fielderrors.Location) {
	if parameters.Len() > maxParameters {
		f.TooLong(p, maxParameters)
		return
	}
	size := 0
	for _, m := range parameters.Members() {
		if m.Key == "" {
			f.Invalid(p, m.Key, "field can not be empty.")
		}
		size += len(m.Key) + m.Value.Len()
	}
	if size > maxParameterBytes {
		f.TooLong(p, maxParameterBytes)
	}
	if !mayBeEmpty && parameters.Len() == 0 {
		f.Required(p, "must contain at least one key/value pair")
	}
}

func storageClassCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	f.provisioner(root.To("provisioner"), text(obj, "provisioner"))
	f.parameters(obj.At("parameters"), true, root.To("parameters"))
	if policy := text(obj, "reclaimPolicy"); policy != "" {
		f.only(root.To("reclaimPolicy"), policy, classReclaim)
	}
	f.only(root.To("volumeBindingMode"), text(obj, "volumeBindingMode"), bindingModes)
	f.allowedTopologies(obj.At("allowedTopologies"), root.To("allowedTopologies"))
}

// allowedTopologies checks the topologies in which volumes may be created.
func (f *errorList) allowedTopologies(terms object.Value, p *fielderrors.Location) {
	var before []map[string]map[string]bool
	for i, term := range terms.Items() {
		p := p.Item(i).To("matchLabelExpressions")
		keys := map[string]map[string]bool{}
		for j, requirement := range term.At("matchLabelExpressions").Items() {
			p := p.Item(j)
			key := text(requirement, "key")
			values := map[string]bool{}
			f.requiredList(p.To("values"), requirement.At("values"))
			for k, value := range requirement.At("values").Items() {
				if values[value.Str()] {
					f.Duplicate(p.To("values").Item(k), value.Str())
				}
				values[value.Str()] = true
			}
			f.qualified(p.To("key"), key)
			if _, again := keys[key]; again {
				f.Duplicate(p.To("key"), key)
			}
			keys[key] = values
		}
		for _, other := range before {
			if sameTopology(keys, other) {
				f.Duplicate(p, "")
			}
		}
		if len(keys) == 0 { // the reference's list is initialized with as many empty entries as there are terms
			f.Duplicate(p, "")
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

func storageClassUpdate(f *errorList, obj, old object.Value) {
	storageClassCreate(f, obj)
	for _, key := range [...]string{"parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"} {
		if now, before := obj.At(key), old.At(key); !object.Equal(now, before) {
			f.changed((*fielderrors.Location)(nil).To(key))
		}
	}
}

func attachmentCreate(f *errorList, obj object.Value) {
	f.declaredDriverName((*fielderrors.Location)(nil).To("spec").To("attacher"), text(obj.At("spec"), "attacher"))
	f.attachment(obj)
}

func (f *errorList) attachment(obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	f.subdomain(p.To("nodeName"), text(spec, "nodeName"))
	inline, volume := spec.At("source", "inlineVolumeSpec"), spec.At("source", "persistentVolumeName")
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case inline.IsNull() && volume.IsNull():
		f.Required(p.To("source"), exactlyOne)
	case !inline.IsNull() && !volume.IsNull():
		f.Forbidden(p.To("source"), exactlyOne)
	case !inline.IsNull():
		f.inlineVolume(inline, p.To("source").To("inlineVolumeSpec"))
	case volume.Len() == 0:
		f.Required(p.To("source").To("persistentVolumeName"), "must specify non empty persistentVolumeName")
	}
	if !volume.IsNull() {
		f.subdomain((*fielderrors.Location)(nil).To("spec.source.persistentVolumeName"), volume.Str())
	}
	status := obj.At("status")
	at := (*fielderrors.Location)(nil).To("status")
	size := 0
	for _, m := range status.At("attachmentMetadata").Members() {
		size += len(m.Key) + m.Value.Len()
	}
	if size > maxAttachmentBytes {
		f.TooLong(at.To("attachmentMetadata"), maxAttachmentBytes)
	}
	for _, key := range [...]string{"attachError", "detachError"} {
		failure := status.At(key)
		if length(failure, "message") > maxVolumeError {
			f.TooLong(at.To(key).To("message"), maxVolumeError)
		}
		f.within(at.To(key).To("errorCode"), number(failure, "errorCode"), 0, math.MaxInt32)
	}
}

func attachmentUpdate(f *errorList, obj, old object.Value) {
	// Upstream's generated rules stop at a changed spec and do not check unchanged values.
	f.csiDriverName((*fielderrors.Location)(nil).To("spec").To("attacher"), text(obj.At("spec"), "attacher"))
	f.attachment(obj)
	if !same(obj.At("spec"), old.At("spec")) {
		f.changed((*fielderrors.Location)(nil).To("spec"))
	}
}

func csiNodeCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var names nameSet
	for i, driver := range obj.At("spec", "drivers").Items() {
		p := (*fielderrors.Location)(nil).To("spec").To("drivers").Item(i)
		name, id := text(driver, "name"), text(driver, "nodeID")
		f.csiDriverName(p.To("name"), name)
		f.requiredText(p.To("nodeID"), id)
		if len(id) > maxNodeID {
			f.Invalid(p.To("nodeID"), id, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		f.nonNegativeMembers(driver.At("allocatable"), p.To("allocatable"), "count")
		if names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
		var keys nameSet
		for _, item := range driver.At("topologyKeys").Items() {
			f.requiredText(p, item.Str())
			if keys.add(item.Str()) {
				f.Duplicate(p, item.Str())
			}
			f.qualified(p, item.Str())
		}
	}
}

var csiNodeDriverFields = []goField{{name: "Name", member: "name"}, {name: "NodeID", member: "nodeID"},
	{name: "TopologyKeys", member: "topologyKeys"}, {name: "Allocatable"}}

func csiNodeUpdate(f *errorList, obj, old object.Value) {
	csiNodeCreate(f, obj)
	for _, before := range old.At("spec", "drivers").Items() {
		for _, now := range obj.At("spec", "drivers").Items() {
			if text(before, "name") == text(now, "name") && !same(before.Without("allocatable"), now.Without("allocatable")) {
				f.Invalid((*fielderrors.Location)(nil).To("spec").To("drivers"), goForm{now, csiNodeDriverFields},
					fielderrors.Immutable)
			}
		}
	}
}

func csiDriverCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	f.onlyIfSet(p.To("fsGroupPolicy"), spec.At("fsGroupPolicy"), fsGroupPolicies)
	f.tokenRequests(spec.At("tokenRequests"), p.To("tokenRequests"))
	for _, mode := range spec.At("volumeLifecycleModes").Items() {
		f.only(p.To("volumeLifecycleModes"), mode.Str(), lifecycleModes)
	}
	if period := spec.At("nodeAllocatableUpdatePeriodSeconds"); !period.IsNull() && period.Int() < minUpdatePeriod {
		f.Invalid(p.To("nodeAllocatableUpdatePeriodSeconds"), period.Int(),
			"must be greater than or equal to 10 seconds")
	}
	if secrets := spec.At("serviceAccountTokenInSecrets"); !secrets.IsNull() && length(spec, "tokenRequests") == 0 {
		f.Invalid(p.To("serviceAccountTokenInSecrets"), secrets.Bool(),
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified")
	}
}

func (f *errorList) tokenRequests(requests object.Value, p *fielderrors.Location) {
	var audiences nameSet
	for i, request := range requests.Items() {
		p := p.Item(i)
		if audience := text(request, "audience"); audiences.add(audience) {
			f.Duplicate(p.To("audience"), audience)
			continue
		}
		seconds := request.At("expirationSeconds")
		switch {
		case seconds.IsNull():
		case seconds.Int() < minTokenSeconds:
			f.Invalid(p.To("expirationSeconds"), seconds.Int(), "may not specify a duration less than 10 minutes")
		case seconds.Int() > maxTokenSeconds:
			f.Invalid(p.To("expirationSeconds"), seconds.Int(), "may not specify a duration larger than 2^32 seconds")
		}
	}
}

func csiDriverUpdate(f *errorList, obj, old object.Value) {
	csiDriverCreate(f, obj)
	for _, member := range [...][2]string{{"attachRequired", "attachedRequired"},
		{"volumeLifecycleModes", "volumeLifecycleModes"}} {
		if now := obj.At("spec", member[0]); !same(now, old.At("spec", member[0])) {
			f.Invalid((*fielderrors.Location)(nil).To("spec").To(member[1]), fielderrors.Show(now), fielderrors.Immutable)
		}
	}
}

func capacityCreate(f *errorList, obj object.Value) { f.capacity(obj, false) }

func (f *errorList) capacity(obj object.Value, lenient bool) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	f.labelSelector(obj.At("nodeTopology"), root.To("nodeTopology"), lenient)
	f.subdomain(root.To("storageClassName"), text(obj, "storageClassName"))
	if amount := quantity(obj.At("capacity")); amount.Sign() < 0 {
		f.Invalid(root.To("capacity"), amount.String(), fielderrors.NotNegative)
	}
}

func capacityUpdate(f *errorList, obj, old object.Value) {
	var root *fielderrors.Location
	f.capacity(obj, invalidSelector(old.At("nodeTopology")))
	if now := obj.At("nodeTopology"); !same(now, old.At("nodeTopology")) {
		f.Invalid(root.To("nodeTopology"), fielderrors.Show(now, selectorOrder...), fielderrors.Immutable)
	}
	if now := text(obj, "storageClassName"); now != text(old, "storageClassName") {
		f.Invalid(root.To("storageClassName"), now, fielderrors.Immutable)
	}
}

func attributesClassCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	f.provisioner(root.To("driverName"), text(obj, "driverName"))
	f.parameters(obj.At("parameters"), false, root.To("parameters"))
}

func attributesClassUpdate(f *errorList, obj, old object.Value) {
	var root *fielderrors.Location
	if text(obj, "driverName") != text(old, "driverName") {
		f.Forbidden(root.To("driverName"), "updates to driverName are forbidden.")
	}
	if !object.Equal(obj.At("parameters"), old.At("parameters")) {
		f.Forbidden(root.To("parameters"), "updates to parameters are forbidden.")
	}
	attributesClassCreate(f, obj)
}
