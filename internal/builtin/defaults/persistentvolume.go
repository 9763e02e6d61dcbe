package defaults

import "plinth/object"

// PersistentVolume defaults a PersistentVolume.
func PersistentVolume(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", func(spec object.Value) object.Value { return persistentVolumeSpec(spec, true) })
	w.part("status", pendingPhase)
	return w.done()
}

// persistentVolumeSpec defaults the spec of a PersistentVolume. In a VolumeAttachment, reclaim policy and mode have no
// defaults.
func persistentVolumeSpec(spec object.Value, ofVolume bool) object.Value {
	w := over(spec)
	w.optional("azureDisk", azureDisk)
	w.part("capacity", resourceList)
	w.optional("hostPath", hostPath)
	w.optional("iscsi", iscsi)
	if ofVolume {
		w.text("persistentVolumeReclaimPolicy", "Retain")
	}
	w.optional("rbd", rbd)
	w.optional("scaleIO", scaleIO)
	if ofVolume {
		w.pointer("volumeMode", object.StringOf("Filesystem"))
	}
	return w.done()
}

func pendingPhase(status object.Value) object.Value { return textOf(status, "phase", "Pending") }

// PersistentVolumeClaim defaults a PersistentVolumeClaim, also a template in a StatefulSet.
func PersistentVolumeClaim(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", persistentVolumeClaimSpec)
	w.part("status", persistentVolumeClaimStatus)
	return w.done()
}

func persistentVolumeClaimSpec(spec object.Value) object.Value {
	w := over(spec)
	w.part("resources", resourceRequirements)
	w.pointer("volumeMode", object.StringOf("Filesystem"))
	return w.done()
}

func persistentVolumeClaimStatus(status object.Value) object.Value {
	w := over(status)
	w.part("allocatedResources", resourceList)
	w.part("capacity", resourceList)
	w.text("phase", "Pending")
	return w.done()
}
