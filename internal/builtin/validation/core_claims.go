package validation

import (
	"plinth/object"
)

var (
	accessModes     = []string{"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}
	reclaimPolicies = []string{"Delete", "Recycle", "Retain"}
	volumeModes     = []string{"Block", "Filesystem"}
)

// templateMeta are the members of metadata in the order of its Go type; a template may only have labels and annotations.
var templateMeta = [...]string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields"}

// goNames are those members whose Go names differ in more than the case of the first letter.
var goNames = map[string]string{"uid": "uID"}

func (f *faults) templateMeta(meta object.Value, p *place) {
	f.annotations(meta.At("annotations"), p.to("annotations"))
	f.labels(meta.At("labels"), p.to("labels"))
	for _, key := range templateMeta {
		if v := meta.At(key); !blank(v) && v.Kind() != object.Int || v.Int() != 0 {
			f.forbidden(p.to(or(goNames[key], key)), "cannot be set")
		}
	}
}

// claimTemplate checks the claim that is made for a volume of a pod.
func (f *faults) claimTemplate(template object.Value, p *place) {
	f.templateMeta(template.At("metadata"), p.to("metadata"))
	f.claimSpec(template.At("spec"), claimLeniency{}, p.to("spec"))
}

// claimLeniency is what an update of a claim may keep.
type claimLeniency struct{ selector, apiGroup bool }

func (f *faults) accessModes(modes object.Value, p *place) {
	single, others := false, false
	for _, item := range modes.Items() {
		mode := item.Str()
		f.only(p, mode, accessModes)
		single = single || mode == "ReadWriteOncePod"
		others = others || mode != "ReadWriteOncePod" && holds(accessModes, mode)
	}
	if single && others {
		f.forbidden(p, "may not use ReadWriteOncePod with other access modes")
	}
}

func (f *faults) claimSpec(spec object.Value, old claimLeniency, p *place) {
	if length(spec, "accessModes") == 0 {
		f.required(p.to("accessModes"), "at least 1 access mode is required")
	}
	f.labelSelector(spec.At("selector"), p.to("selector"), old.selector)
	f.accessModes(spec.At("accessModes"), p.to("accessModes"))
	if size, ok := spec.At("resources", "requests").Get("storage"); ok {
		f.amountPositive(p.to("resources").key("storage"), quantity(size))
	} else {
		f.required(p.to("resources").key("storage"), "")
	}
	if class := text(spec, "storageClassName"); class != "" {
		f.subdomain(p.to("storageClassName"), class)
	}
	f.onlyIfSet(p.to("volumeMode"), spec.At("volumeMode"), volumeModes)
	f.dataSources(spec, old, p)
	if class := text(spec, "volumeAttributesClassName"); class != "" {
		f.subdomain(p.to("volumeAttributesClassName"), class)
	}
}

// dataSources checks where a volume's first content comes from.
func (f *faults) dataSources(spec object.Value, old claimLeniency, p *place) {
	source, ref := spec.At("dataSource"), spec.At("dataSourceRef")
	if !source.IsNull() {
		f.dataSource(source, old, p.to("dataSource"))
	}
	if ref.IsNull() {
		return
	}
	f.dataSource(ref, old, p.to("dataSourceRef"))
	namespace := text(ref, "namespace")
	if namespace != "" {
		f.label(p.to("dataSourceRef").to("namespace"), namespace)
	}
	switch { // the reference shows a path as the value
	case source.IsNull():
	case namespace != "":
		f.invalid(p, struct{}{}, "may not be specified when dataSourceRef.namespace is specified")
	case !object.Equal(source, ref.Without("namespace")):
		f.invalid(p, struct{}{}, "must match dataSourceRef")
	}
}

func (f *faults) dataSource(from object.Value, old claimLeniency, p *place) {
	kind, group := text(from, "kind"), text(from, "apiGroup")
	f.requiredText(p.to("name"), text(from, "name"))
	f.requiredText(p.to("kind"), kind)
	if group == "" && kind != "PersistentVolumeClaim" {
		f.invalid(p, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if group != "" && !old.apiGroup {
		f.subdomain(p.to("apiGroup"), group)
	}
}

func claimCreate(f *faults, claim object.Value) {
	f.qualifiedFinalizers(claim)
	f.claimSpec(claim.At("spec"), claimLeniency{}, (*place)(nil).to("spec"))
}

const betaStorageClass = "volume.beta.kubernetes.io/storage-class"

func claimUpdate(f *faults, claim, old object.Value) {
	var root *place
	f.qualifiedFinalizers(claim)
	spec, was := claim.At("spec"), old.At("spec")
	var selector faults
	selector.labelSelector(was.At("selector"), nil, false)
	f.claimSpec(spec, claimLeniency{
		selector: len(selector.list) > 0,
		apiGroup: has(was.At("dataSource"), "apiGroup") || has(was.At("dataSourceRef"), "apiGroup"),
	}, root.to("spec"))
	f.claimChanges(claim, old)
	now, before := quantity(spec.At("resources", "requests", "storage")), quantity(was.At("resources", "requests", "storage"))
	if have := quantity(old.At("status", "capacity", "storage")); now.Cmp(before) < 0 && now.Cmp(have) <= 0 {
		f.forbidden(root.to("spec").to("resources").to("requests").to("storage"), "field can not be less than status.capacity")
	}
	if !same(spec.At("volumeMode"), was.At("volumeMode")) {
		f.invalid(root.to("volumeMode"), show(spec.At("volumeMode")), immutable)
	}
	class := spec.At("volumeAttributesClassName")
	if object.Equal(class, was.At("volumeAttributesClassName")) || !has(old.At("status"), "currentVolumeAttributesClassName") {
		return
	}
	at := root.to("spec").to("volumeAttributesClassName")
	if class.IsNull() {
		f.forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	} else if class.Len() == 0 {
		f.forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// claimChanges refuses changes of the spec, but that the claim is bound to a volume, that a class which was named in an
// annotation, or not at all, is named, and that a bound claim asks for another size or other attributes.
func (f *faults) claimChanges(claim, old object.Value) {
	spec, was := claim.At("spec"), old.At("spec")
	if text(was, "volumeName") == "" {
		was = sameMember(was, spec, "volumeName")
	}
	annotation, annotated := old.At("metadata", "annotations").Get(betaStorageClass)
	now, stillAnnotated := claim.At("metadata", "annotations").Get(betaStorageClass)
	class := spec.At("storageClassName")
	named := !class.IsNull() && !has(was, "storageClassName")
	if named && annotated && class.Str() == annotation.Str() && (!stillAnnotated || now.Str() == annotation.Str()) {
		spec = spec.Without("storageClassName")
	} else {
		if now.Str() != annotation.Str() {
			f.invalid((*place)(nil).to("metadata").to("annotations").to(betaStorageClass), now.Str(), immutable)
		}
		if named && (!annotated || class.Str() == annotation.Str()) {
			spec = sameMember(spec, was, "storageClassName")
		}
	}
	if text(claim.At("status"), "phase") == "Bound" {
		if requests := spec.At("resources", "requests"); requests.Len() > 0 {
			spec = spec.With("resources", spec.At("resources").With("requests", sameMember(requests, was.At("resources", "requests"), "storage")))
		}
		spec = sameMember(spec, was, "volumeAttributesClassName")
	}
	if !same(spec, was) {
		f.forbidden((*place)(nil).to("spec"),
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+difference(was, spec))
	}
}

// sameMember is v with one member as other has it.
func sameMember(v, other object.Value, key string) object.Value {
	if member, ok := other.Get(key); ok {
		return v.With(key, member)
	}
	return v.Without(key)
}

// resizeStatuses is sorted.
var resizeStatuses = []string{"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"}

func claimStatus(f *faults, claim, old object.Value) {
	f.qualifiedFinalizers(claim)
	at := (*place)(nil).to("status")
	status := claim.At("status")
	for _, m := range status.At("capacity").Members() {
		f.basicAmount(m.Value, at.to("capacity").key(m.Key))
	}
	for _, m := range status.At("allocatedResourceStatuses").Members() {
		f.claimResource(m.Key, at.to("allocatedResourceStatuses"))
		if !holds(resizeStatuses, m.Value.Str()) {
			f.unsupported(at.to("allocatedResourceStatuses"), m.Key, resizeStatuses)
		}
	}
	for _, m := range status.At("allocatedResources").Members() {
		before := len(f.list)
		if f.claimResource(m.Key, at.to("allocatedResources")); len(f.list) == before {
			f.basicAmount(m.Value, at.to("allocatedResources").key(m.Key))
		}
	}
}

// basicAmount demands an amount that is not negative.
func (f *faults) basicAmount(v object.Value, p *place) {
	if amount := quantity(v); amount.Value() < 0 {
		f.invalid(p, amount.Value(), "must be a valid resource quantity")
	}
}

func (f *faults) claimResource(name string, p *place) {
	if wrong := qualifiedFaults(name); len(wrong) > 0 {
		f.each(p, name, wrong)
	} else if isNativeResource(name) && name != "storage" {
		f.unsupportedText(p, name, []string{"storage"})
	}
}
