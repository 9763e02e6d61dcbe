package columns

import (
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"plinth/object"
)

// PersistentVolumes and their claims, of the core group.
var (
	PersistentVolumeClaims = of(name,
		str("Status", doc[corev1.PersistentVolumeClaimStatus]("phase"), phaseOrTerminating),
		str("Volume", doc[corev1.PersistentVolumeClaimSpec]("volumeName"), text("spec", "volumeName")),
		str("Capacity", doc[corev1.PersistentVolumeClaimStatus]("capacity"), ifBound(func(obj object.Value) string {
			return or(obj.At("status", "capacity", "storage").Str(), "0")
		})),
		str("Access Modes", doc[corev1.PersistentVolumeClaimStatus]("accessModes"),
			ifBound(func(obj object.Value) string {
				return accessModes(obj.At("status", "accessModes"))
			})),
		str("StorageClass", "StorageClass of the pvc", storageClassName),
		str("VolumeAttributesClass", "VolumeAttributesClass of the pvc", present("spec", "volumeAttributesClassName")),
		age,
		wide(str("VolumeMode", doc[corev1.PersistentVolumeClaimSpec]("volumeMode"), present("spec", "volumeMode"))),
	)

	PersistentVolumes = of(name,
		str("Capacity", doc[corev1.PersistentVolumeSpec]("capacity"), textOr("0", "spec", "capacity", "storage")),
		str("Access Modes", doc[corev1.PersistentVolumeSpec]("accessModes"), func(obj object.Value) any {
			return accessModes(obj.At("spec", "accessModes"))
		}),
		str("Reclaim Policy", doc[corev1.PersistentVolumeSpec]("persistentVolumeReclaimPolicy"),
			text("spec", "persistentVolumeReclaimPolicy")),
		str("Status", doc[corev1.PersistentVolumeStatus]("phase"), phaseOrTerminating),
		str("Claim", doc[corev1.PersistentVolumeSpec]("claimRef"), func(obj object.Value) any {
			claim := obj.At("spec", "claimRef")
			if claim.IsNull() {
				return ""
			}
			return claim.At("namespace").Str() + "/" + claim.At("name").Str()
		}),
		str("StorageClass", "StorageClass of the pv", storageClassName),
		str("VolumeAttributesClass", "VolumeAttributesClass of the pv", present("spec", "volumeAttributesClassName")),
		str("Reason", doc[corev1.PersistentVolumeStatus]("reason"), text("status", "reason")),
		age,
		wide(str("VolumeMode", doc[corev1.PersistentVolumeSpec]("volumeMode"), present("spec", "volumeMode"))),
	)
)

func phaseOrTerminating(obj object.Value) any {
	if deleted(obj) {
		return "Terminating"
	}
	return obj.At("status", "phase").Str()
}

// ifBound returns a cell that is empty until the claim is bound to a volume.
func ifBound(get func(obj object.Value) string) cell {
	return func(obj object.Value) any {
		if obj.At("spec", "volumeName").Str() == "" {
			return ""
		}
		return get(obj)
	}
}

func storageClassName(obj object.Value) any {
	if class, has := obj.At("metadata", "annotations").Get("volume.beta.kubernetes.io/storage-class"); has {
		return class.Str()
	}
	return obj.At("spec", "storageClassName").Str()
}

// The access modes in the order in which they are shown, and how.
var modeOrder = []string{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"}

var modeShort = []string{"RWO", "ROX", "RWX", "RWOP"}

func accessModes(modes object.Value) string {
	has := list(modes)
	sort.Strings(has)
	var short []string
	for i, mode := range modeOrder {
		if at := sort.SearchStrings(has, mode); at < len(has) && has[at] == mode {
			short = append(short, modeShort[i])
		}
	}
	return strings.Join(short, ",")
}
