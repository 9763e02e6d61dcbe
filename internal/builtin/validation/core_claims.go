package validation

import (
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	accessModes     = []string{"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}
	reclaimPolicies = []string{"Delete", "Recycle", "Retain"}
	volumeModes     = []string{"Block", "Filesystem"}
)

// templateMeta are the members of metadata that a template may not have, in the order of its Go type: all except labels
// and annotations.
var templateMeta = [...]string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
	"creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields"}

// goNames are those members whose Go names differ in more than the case of the first letter.
var goNames = map[string]string{"uid": "uID"}

func (f *errorList) templateMeta(meta object.Value, p *fielderrors.Location) {
	objectmeta.Annotations(&f.Errors, meta.At("annotations"), p.To("annotations"))
	objectmeta.Labels(&f.Errors, meta.At("labels"), p.To("labels"))
	for _, key := range templateMeta {
		if has(meta, key) {
			f.Forbidden(p.To(or(goNames[key], key)), "cannot be set")
		}
	}
}

// claimTemplate checks the claim that is made for a volume of a pod.
func (f *errorList) claimTemplate(template object.Value, p *fielderrors.Location) {
	f.templateMeta(template.At("metadata"), p.To("metadata"))
	f.claimSpec(template.At("spec"), claimLeniency{}, p.To("spec"))
}

// claimLeniency has the errors that an update of a claim may keep.
type claimLeniency struct{ selector, apiGroup bool }

func (f *errorList) accessModes(modes object.Value, p *fielderrors.Location) {
	single, others := false, false
	for _, item := range modes.Items() {
		mode := item.Str()
		f.only(p, mode, accessModes)
		single = single || mode == "ReadWriteOncePod"
		others = others || mode != "ReadWriteOncePod" && holds(accessModes, mode)
	}
	if single && others {
		f.Forbidden(p, "may not use ReadWriteOncePod with other access modes")
	}
}

func (f *errorList) claimSpec(spec object.Value, old claimLeniency, p *fielderrors.Location) {
	if length(spec, "accessModes") == 0 {
		f.Required(p.To("accessModes"), "at least 1 access mode is required")
	}
	f.labelSelector(spec.At("selector"), p.To("selector"), old.selector)
	f.accessModes(spec.At("accessModes"), p.To("accessModes"))
	if size, ok := spec.At("resources", "requests").Get("storage"); ok {
		f.amountPositive(p.To("resources").Key("storage"), quantity(size))
	} else {
		f.Required(p.To("resources").Key("storage"), "")
	}
	if class := text(spec, "storageClassName"); class != "" {
		f.subdomain(p.To("storageClassName"), class)
	}
	f.onlyIfSet(p.To("volumeMode"), spec.At("volumeMode"), volumeModes)
	f.dataSources(spec, old, p)
	if class := text(spec, "volumeAttributesClassName"); class != "" {
		f.subdomain(p.To("volumeAttributesClassName"), class)
	}
}

// dataSources checks the sources of a volume's initial content.
func (f *errorList) dataSources(spec object.Value, old claimLeniency, p *fielderrors.Location) {
	source, ref := spec.At("dataSource"), spec.At("dataSourceRef")
	if !source.IsNull() {
		f.dataSource(source, old, p.To("dataSource"))
	}
	if ref.IsNull() {
		return
	}
	f.dataSource(ref, old, p.To("dataSourceRef"))
	namespace := text(ref, "namespace")
	if namespace != "" {
		f.label(p.To("dataSourceRef").To("namespace"), namespace)
	}
	switch { // the reference prints a path as the value
	case source.IsNull():
	case namespace != "":
		f.Invalid(p, struct{}{}, "may not be specified when dataSourceRef.namespace is specified")
	case !object.Equal(source, ref.Without("namespace")):
		f.Invalid(p, struct{}{}, "must match dataSourceRef")
	}
}

func (f *errorList) dataSource(from object.Value, old claimLeniency, p *fielderrors.Location) {
	kind, group := text(from, "kind"), text(from, "apiGroup")
	f.requiredText(p.To("name"), text(from, "name"))
	f.requiredText(p.To("kind"), kind)
	if group == "" && kind != "PersistentVolumeClaim" {
		f.Invalid(p, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if group != "" && !old.apiGroup {
		f.subdomain(p.To("apiGroup"), group)
	}
}

func claimCreate(f *errorList, claim object.Value) {
	f.qualifiedFinalizers(claim)
	f.claimSpec(claim.At("spec"), claimLeniency{}, (*fielderrors.Location)(nil).To("spec"))
}

const betaStorageClass = "volume.beta.kubernetes.io/storage-class"

func claimUpdate(f *errorList, claim, old object.Value) {
	var root *fielderrors.Location
	f.qualifiedFinalizers(claim)
	spec, previous := claim.At("spec"), old.At("spec")
	f.claimSpec(spec, claimLeniency{
		selector: invalidSelector(previous.At("selector")),
		apiGroup: has(previous.At("dataSource"), "apiGroup") || has(previous.At("dataSourceRef"), "apiGroup"),
	}, root.To("spec"))
	f.claimChanges(claim, old)
	now, before := quantity(spec.At("resources", "requests", "storage")),
		quantity(previous.At("resources", "requests", "storage"))
	if have := quantity(old.At("status", "capacity", "storage")); now.Cmp(before) < 0 && now.Cmp(have) <= 0 {
		f.Forbidden(root.To("spec").To("resources").To("requests").To("storage"),
			"field can not be less than status.capacity")
	}
	if !same(spec.At("volumeMode"), previous.At("volumeMode")) {
		f.Invalid(root.To("volumeMode"), fielderrors.Show(spec.At("volumeMode")), fielderrors.Immutable)
	}
	class := spec.At("volumeAttributesClassName")
	if object.Equal(class, previous.At("volumeAttributesClassName")) || !has(old.At("status"),
		"currentVolumeAttributesClassName") {
		return
	}
	at := root.To("spec").To("volumeAttributesClassName")
	if class.IsNull() {
		f.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	} else if class.Len() == 0 {
		f.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// claimChanges refuses changes of the spec, except that the claim may be bound to a volume, that a class may be set
// that was only in an annotation or missing, and that a bound claim may request another size or other attributes.
func (f *errorList) claimChanges(claim, old object.Value) {
	spec, before := claim.At("spec"), old.At("spec")
	if text(before, "volumeName") == "" {
		before = sameMember(before, spec, "volumeName")
	}
	annotation, annotated := old.At("metadata", "annotations").Get(betaStorageClass)
	now, stillAnnotated := claim.At("metadata", "annotations").Get(betaStorageClass)
	unset := !has(before, "storageClassName")
	moved := unset && text(spec, "storageClassName") == annotation.Str()
	if now.Str() != annotation.Str() && !(moved && !stillAnnotated) {
		f.Invalid((*fielderrors.Location)(nil).To("metadata").To("annotations").To(betaStorageClass), now.Str(),
			fielderrors.Immutable)
	}
	if moved || unset && !annotated {
		spec = sameMember(spec, before, "storageClassName")
	}
	if text(claim.At("status"), "phase") == "Bound" {
		if requests := spec.At("resources", "requests"); requests.Len() > 0 {
			spec = spec.With("resources",
				spec.At("resources").With("requests", sameMember(requests, before.At("resources", "requests"), "storage")))
		}
		spec = sameMember(spec, before, "volumeAttributesClassName")
	}
	if !same(spec, before) {
		f.Forbidden((*fielderrors.Location)(nil).To("spec"),
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+
				difference(before, spec))
	}
}

// sameMember is v with one member replaced by that of other.
func sameMember(v, other object.Value, key string) object.Value {
	if member, ok := other.Get(key); ok {
		return v.With(key, member)
	}
	return v.Without(key)
}

// resizeStatuses is sorted.
var resizeStatuses = []string{"ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress",
	"NodeResizeInfeasible", "NodeResizePending"}

func claimStatus(f *errorList, claim, old object.Value) {
	f.qualifiedFinalizers(claim)
	at := (*fielderrors.Location)(nil).To("status")
	status := claim.At("status")
	for _, m := range status.At("capacity").Members() {
		f.basicAmount(m.Value, at.To("capacity").Key(m.Key))
	}
	for _, m := range status.At("allocatedResourceStatuses").Members() {
		f.claimResource(m.Key, at.To("allocatedResourceStatuses"))
		if !holds(resizeStatuses, m.Value.Str()) {
			f.Unsupported(at.To("allocatedResourceStatuses"), m.Key, resizeStatuses)
		}
	}
	for _, m := range status.At("allocatedResources").Members() {
		before := len(f.List)
		if f.claimResource(m.Key, at.To("allocatedResources")); len(f.List) == before {
			f.basicAmount(m.Value, at.To("allocatedResources").Key(m.Key))
		}
	}
}

// basicAmount demands an amount that is not negative.
func (f *errorList) basicAmount(v object.Value, p *fielderrors.Location) {
	if amount := quantity(v); amount.Value() < 0 {
		f.Invalid(p, amount.Value(), "must be a valid resource quantity")
	}
}

func (f *errorList) claimResource(name string, p *fielderrors.Location) {
	if wrong := objectmeta.LabelKeyErrors(name); len(wrong) > 0 {
		f.Each(p, name, wrong)
	} else if objectmeta.IsNativeResource(name) && name != "storage" {
		f.UnsupportedText(p, name, []string{"storage"})
	}
}
