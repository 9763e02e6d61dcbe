package defaults

import "plinth/object"

// fileMode is 0644, the default mode of files in a volume.
var fileMode = object.IntOf(0o644)

// volume defaults a volume of a Pod, by the kind of its source.
func volume(v object.Value) object.Value {
	w := over(v)
	w.optional("azureDisk", azureDisk)
	w.optional("configMap", defaultMode)
	w.optional("downwardAPI", downwardAPI)
	if !hasSource(v) {
		w.get("emptyDir")
		w.set("emptyDir", emptyMap)
	}
	w.optional("ephemeral", ephemeral)
	w.optional("hostPath", hostPath)
	w.optional("image", imageVolume)
	w.optional("iscsi", iscsi)
	w.optional("projected", projected)
	w.optional("rbd", rbd)
	w.optional("scaleIO", scaleIO)
	w.optional("secret", defaultMode)
	return w.done()
}

func hasSource(v object.Value) bool {
	for _, m := range v.Members() {
		if m.Key != "name" {
			return true
		}
	}
	return false
}

// defaultMode defaults the sources that write API objects to files.
func defaultMode(source object.Value) object.Value { return pointerOf(source, "defaultMode", fileMode) }

func azureDisk(disk object.Value) object.Value {
	w := over(disk)
	w.pointer("cachingMode", object.StringOf("ReadWrite"))
	w.pointer("fsType", object.StringOf("ext4"))
	w.pointer("kind", object.StringOf("Shared"))
	w.pointer("readOnly", no)
	return w.done()
}

func downwardAPI(source object.Value) object.Value {
	w := over(source)
	w.pointer("defaultMode", fileMode)
	w.list("items", downwardAPIFile)
	return w.done()
}

func downwardAPIFile(file object.Value) object.Value { return optionalOf(file, "fieldRef", fieldRef) }

func ephemeral(source object.Value) object.Value {
	return optionalOf(source, "volumeClaimTemplate", volumeClaimTemplate)
}

func volumeClaimTemplate(template object.Value) object.Value {
	return partOf(template, "spec", persistentVolumeClaimSpec)
}

func hostPath(source object.Value) object.Value {
	return pointerOf(source, "type", object.StringOf(""))
}

func imageVolume(source object.Value) object.Value {
	const key = "pullPolicy"
	w := over(source)
	if w.get(key).Len() == 0 {
		reference, _ := source.Get("reference")
		w.set(key, pullPolicyFor(reference.Str()))
	}
	return w.done()
}

func iscsi(source object.Value) object.Value { return textOf(source, "iscsiInterface", "default") }

func projected(source object.Value) object.Value {
	w := over(source)
	w.pointer("defaultMode", fileMode)
	w.list("sources", projection)
	return w.done()
}

func projection(source object.Value) object.Value {
	w := over(source)
	w.optional("downwardAPI", projectedDownwardAPI)
	w.optional("serviceAccountToken", expirationSeconds)
	return w.done()
}

// projectedDownwardAPI has no default mode.
func projectedDownwardAPI(source object.Value) object.Value {
	return listOf(source, "items", downwardAPIFile)
}

// expirationSeconds is an hour by default.
func expirationSeconds(token object.Value) object.Value {
	return pointerOf(token, "expirationSeconds", object.IntOf(3600))
}

func rbd(source object.Value) object.Value {
	w := over(source)
	w.text("keyring", "/etc/ceph/keyring")
	w.text("pool", "rbd")
	w.text("user", "admin")
	return w.done()
}

func scaleIO(source object.Value) object.Value {
	w := over(source)
	w.text("fsType", "xfs")
	w.text("storageMode", "ThinProvisioned")
	return w.done()
}
