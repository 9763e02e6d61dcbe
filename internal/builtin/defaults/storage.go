package defaults

import "plinth/object"

// CSIDriver defaults a CSIDriver.
func CSIDriver(obj object.Value) object.Value { return partOf(obj, "spec", csiDriverSpec) }

func csiDriverSpec(spec object.Value) object.Value {
	w := over(spec)
	w.pointer("attachRequired", yes)
	w.pointer("fsGroupPolicy", object.StringOf("ReadWriteOnceWithFSType"))
	w.pointer("podInfoOnMount", no)
	w.pointer("preventPodSchedulingIfMissing", no)
	w.pointer("requiresRepublish", no)
	w.pointer("seLinuxMount", no)
	w.pointer("storageCapacity", no)
	if w.get("volumeLifecycleModes").Len() == 0 {
		w.set("volumeLifecycleModes", persistentMode)
	}
	return w.done()
}

var persistentMode = object.Strings("Persistent")

// StorageClass defaults a StorageClass.
func StorageClass(obj object.Value) object.Value {
	w := over(obj)
	w.pointer("reclaimPolicy", object.StringOf("Delete"))
	w.pointer("volumeBindingMode", object.StringOf("Immediate"))
	return w.done()
}

// VolumeAttachment defaults a VolumeAttachment, which may contain the spec of a volume without a PersistentVolume.
func VolumeAttachment(obj object.Value) object.Value {
	return partOf(obj, "spec", volumeAttachmentSpec)
}

func volumeAttachmentSpec(spec object.Value) object.Value {
	return partOf(spec, "source", volumeAttachmentSource)
}

func volumeAttachmentSource(source object.Value) object.Value {
	return optionalOf(source, "inlineVolumeSpec", inlineVolumeSpec)
}

func inlineVolumeSpec(spec object.Value) object.Value { return persistentVolumeSpec(spec, false) }
