package validation

import (
	"path"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/object"
)

// persistentSources are the kinds of PersistentVolumes in the order in which the reference checks them.
var persistentSources = []source{
	{key: "hostPath"}, {key: "gcePersistentDisk", inside: "persistentDisk"}, {key: "awsElasticBlockStore"},
	{key: "glusterfs"},
	{key: "flocker"}, {key: "nfs"}, {key: "rbd"}, {key: "quobyte"}, {key: "cephfs", second: "cephFS"}, {key: "iscsi"},
	{key: "cinder"},
	{key: "fc"}, {key: "flexVolume"}, {key: "azureFile"}, {key: "vsphereVolume"}, {key: "photonPersistentDisk"},
	{key: "portworxVolume"},
	{key: "azureDisk"}, {key: "scaleIO"}, {key: "local"}, {key: "storageos"}, {key: "csi"},
}

// mountable are the kinds that may have mount options in an annotation.
var mountable = []string{"gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi",
	"cinder", "cephfs", "azureFile",
	"vsphereVolume", "azureDisk", "photonPersistentDisk"}

const mountOptions = "volume.beta.kubernetes.io/mount-options"

func volumeCreate(f *errorList, obj object.Value) { f.persistentVolume(obj, false) }

func (f *errorList) persistentVolume(obj object.Value, lenient bool) {
	f.qualifiedFinalizers(obj)
	spec := obj.At("spec")
	f.volumeSpec(spec, text(obj.At("metadata"), "name"), lenient, (*fielderrors.Location)(nil).To("spec"))
	if !has(obj.At("metadata", "annotations"), mountOptions) {
		return
	}
	for _, key := range mountable {
		if has(spec, key) {
			return
		}
	}
	f.Forbidden((*fielderrors.Location)(nil).To("metadata").To("annotations").To(mountOptions),
		"may not specify mount options for this volume type")
}

func (f *errorList) volumeSpec(spec object.Value, name string, lenient bool, p *fielderrors.Location) {
	f.requiredList(p.To("accessModes"), spec.At("accessModes"))
	f.accessModes(spec.At("accessModes"), p.To("accessModes"))
	f.volumeCapacity(spec.At("capacity"), p.To("capacity"))
	policy := text(spec, "persistentVolumeReclaimPolicy")
	f.only(p.To("persistentVolumeReclaimPolicy"), policy, reclaimPolicies)
	affinity := spec.At("nodeAffinity")
	if !affinity.IsNull() {
		if required := affinity.At("required"); required.IsNull() {
			f.Required(p.To("nodeAffinity").To("required"), "must specify required node constraints")
		} else {
			f.nodeSelector(required, lenient, p.To("nodeAffinity").To("required"))
		}
	}
	f.volumeSources(spec, name, p)
	if path.Clean(text(spec.At("hostPath"), "path")) == "/" && policy == "Recycle" {
		f.Forbidden(p.To("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	if class := text(spec, "storageClassName"); class != "" {
		f.subdomain(p.To("storageClassName"), class)
	}
	f.onlyIfSet(p.To("volumeMode"), spec.At("volumeMode"), volumeModes)
	if class := spec.At("volumeAttributesClassName"); !class.IsNull() {
		if class.Len() == 0 {
			f.Required(p.To("volumeAttributesClassName"), "an empty string is disallowed")
		} else {
			f.subdomain(p.To("volumeAttributesClassName"), class.Str())
		}
		if !has(spec, "csi") {
			f.Required(p.To("csi"), "has to be specified when using volumeAttributesClassName")
		}
	}
}

func (f *errorList) volumeCapacity(capacity object.Value, p *fielderrors.Location) {
	f.requiredList(p, capacity)
	if _, ok := capacity.Get("storage"); !ok || capacity.Len() > 1 {
		f.InvalidEnum(p, fielderrors.Show(capacity), []string{"storage"})
	}
	for _, m := range capacity.Members() {
		f.basicAmount(m.Value, p.Key(m.Key))
		f.amountPositive(p.Key(m.Key), quantity(m.Value))
	}
}

func (f *errorList) volumeSources(spec object.Value, name string, p *fielderrors.Location) {
	n := 0
	for _, kind := range persistentSources {
		from := spec.At(kind.key)
		if from.IsNull() {
			continue
		}
		if n++; n > 1 && kind.key != "flexVolume" {
			f.Forbidden(p.To(or(kind.second, kind.key)), moreVolumes)
			continue
		}
		f.persistentSource(kind.key, from, name, p.To(or(kind.inside, kind.key)))
		if kind.key == "local" && !has(spec, "nodeAffinity") {
			f.Required(p.To("nodeAffinity"), "Local volume requires node affinity")
		}
	}
	if n == 0 {
		f.Required(p, "must specify a volume type")
	}
}

func (f *errorList) persistentSource(kind string, from object.Value, name string, p *fielderrors.Location) {
	switch kind {
	case "local":
		if file := text(from, "path"); file == "" {
			f.Required(p.To("path"), "")
		} else {
			f.noBacksteps(p.To("path"), file)
		}
		return
	case "csi":
		f.csiVolume(from, p)
		return
	case "iscsi":
		if portal := text(from, "targetPortal"); has(from, "initiatorName") && len(name)+1+len(portal) > 64 {
			f.Invalid(p.To("targetportal"), portal,
				"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
		}
		f.iscsi(from, p, "must be valid format")
		f.secretName(from, p)
		return
	}
	f.sharedSource(kind, from, p)
	secret := from.At("secretRef")
	switch kind {
	case "glusterfs":
		if namespace := from.At("endpointsNamespace"); !namespace.IsNull() && namespace.Len() == 0 {
			f.Invalid(p.To("endpointsNamespace"), "",
				"if the endpointnamespace is set, it must be a valid namespace name")
		} else if !namespace.IsNull() {
			f.label(p.To("endpointsNamespace"), namespace.Str())
		}
	case "cinder", "storageos":
		if !secret.IsNull() {
			f.requiredText(p.To("secretRef").To("namespace"), text(secret, "namespace"))
		}
	case "azureFile":
		if namespace := from.At("secretNamespace"); !namespace.IsNull() {
			f.requiredText(p.To("secretNamespace"), namespace.Str())
		}
	}
}

func (f *errorList) csiVolume(from object.Value, p *fielderrors.Location) {
	f.csiDriverName(p.To("driver"), text(from, "driver"))
	f.requiredText(p.To("volumeHandle"), text(from, "volumeHandle"))
	for _, key := range [...]string{"controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef",
		"nodeExpandSecretRef"} {
		secret := from.At(key)
		if secret.IsNull() {
			continue
		}
		if name := text(secret, "name"); name == "" {
			f.Required(p.To(key).To("name"), "")
		} else {
			f.subdomain(p.To(key).To("name"), name)
		}
		f.requiredLabel(p.To(key).To("namespace"), text(secret, "namespace"))
	}
}

// inlineVolume checks a volume inside a VolumeAttachment.
func (f *errorList) inlineVolume(spec object.Value, p *fielderrors.Location) {
	const inline = " in the context of inline volumes"
	forbid := func(key string, set bool, what string) {
		if set {
			f.Forbidden(p.To(key), what+inline)
		}
	}
	forbid("claimRef", has(spec, "claimRef"), "may not be specified")
	forbid("capacity", length(spec, "capacity") > 0, "may not be specified")
	if !has(spec, "csi") {
		f.Required(p.To("csi"), "has to be specified"+inline)
	}
	f.requiredList(p.To("accessModes"), spec.At("accessModes"))
	f.accessModes(spec.At("accessModes"), p.To("accessModes"))
	policy := text(spec, "persistentVolumeReclaimPolicy")
	forbid("persistentVolumeReclaimPolicy", policy != "" && policy != "Retain", "may only be Retain")
	forbid("nodeAffinity", has(spec, "nodeAffinity"), "may not be specified")
	f.volumeSources(spec.Without("nodeAffinity"), "", p)
	if path.Clean(text(spec.At("hostPath"), "path")) == "/" && policy == "Recycle" {
		f.Forbidden(p.To("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	forbid("storageClassName", text(spec, "storageClassName") != "", "may not be specified")
	forbid("volumeMode", has(spec, "volumeMode") && text(spec, "volumeMode") != "Filesystem",
		"may not specify volumeMode other than Filesystem")
}

func volumeUpdate(f *errorList, obj, old object.Value) {
	var root *fielderrors.Location
	spec, previous := obj.At("spec"), old.At("spec")
	lenient := false
	for _, term := range previous.At("nodeAffinity", "required", "nodeSelectorTerms").Items() {
		lenient = lenient || badLabelValue(term.At("matchExpressions"))
	}
	f.persistentVolume(obj, lenient)
	f.volumeSourceChange(spec, previous)
	if now := spec.At("volumeMode"); !object.Equal(now, previous.At("volumeMode")) {
		f.Invalid(root.To("volumeMode"), fielderrors.Show(now), fielderrors.Immutable)
	}
	before := previous.At("nodeAffinity")
	if !f.on(features.MutablePVNodeAffinity) && !before.IsNull() && !sameAffinity(spec.At("nodeAffinity"), before) {
		f.Invalid(root.To("nodeAffinity"), goForm{spec.At("nodeAffinity"), volumeAffinityFields},
			fielderrors.Immutable+", except for updating from beta label to GA")
	}
	if has(previous, "volumeAttributesClassName") && !has(spec, "volumeAttributesClassName") {
		f.Forbidden(root.To("spec").To("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
}

var volumeAffinityFields = []goField{{name: "Required", member: "required",
	inner: []goField{{name: "NodeSelectorTerms", member: "nodeSelectorTerms", inner: nodeSelectorTermFields}}}}

// volumeSourceChange refuses a change of the volume source; only the secret for its expansion may be added.
func (f *errorList) volumeSourceChange(spec, previous object.Value) {
	now, before := object.MapOf(), object.MapOf()
	for _, kind := range persistentSources {
		if v := spec.At(kind.key); !v.IsNull() {
			now = now.With(kind.key, v)
		}
		if v := previous.At(kind.key); !v.IsNull() {
			before = before.With(kind.key, v)
		}
	}
	if has(before, "csi") && has(now, "csi") && !has(before.At("csi"), "controllerExpandSecretRef") {
		now = now.With("csi", now.At("csi").Without("controllerExpandSecretRef"))
	}
	if !same(now, before) {
		f.Forbidden((*fielderrors.Location)(nil).To("spec").To("persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+difference(before, now))
	}
}

// successors are the labels that replaced others.
var successors = map[string]string{
	"failure-domain.beta.kubernetes.io/zone":   "topology.kubernetes.io/zone",
	"failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
	"beta.kubernetes.io/os":                    "kubernetes.io/os",
	"beta.kubernetes.io/arch":                  "kubernetes.io/arch",
	"beta.kubernetes.io/instance-type":         "node.kubernetes.io/instance-type",
}

// sameAffinity compares the node affinities of volumes; a label may have been replaced by its successor.
func sameAffinity(now, previous object.Value) bool {
	terms, before := now.At("required", "nodeSelectorTerms").Items(), previous.At("required", "nodeSelectorTerms").Items()
	if now.IsNull() || has(now, "required") != has(previous, "required") || len(terms) != len(before) {
		return false
	}
	for i := range terms {
		for _, key := range [...]string{"matchExpressions", "matchFields"} {
			requirements, old := terms[i].At(key).Items(), before[i].At(key).Items()
			if len(requirements) != len(old) {
				return false
			}
			for j, requirement := range requirements {
				name := text(requirement, "key")
				if name != text(old[j], "key") && successors[text(old[j], "key")] != name {
					return false
				}
				if !same(requirement.Without("key"), old[j].Without("key")) {
					return false
				}
			}
		}
	}
	return true
}
