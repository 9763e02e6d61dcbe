package columns

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"plinth/object"
)

// storage.k8s.io; CSIStorageCapacities have the common columns.
var (
	CSIDrivers = of(name,
		boolean("AttachRequired", doc[storagev1.CSIDriverSpec]("attachRequired"),
			truth(true, "spec", "attachRequired")),
		boolean("PodInfoOnMount", doc[storagev1.CSIDriverSpec]("podInfoOnMount"),
			truth(false, "spec", "podInfoOnMount")),
		boolean("StorageCapacity", doc[storagev1.CSIDriverSpec]("storageCapacity"),
			truth(false, "spec", "storageCapacity")),
		str("TokenRequests", doc[storagev1.CSIDriverSpec]("tokenRequests"), func(obj object.Value) any {
			if v := obj.At("spec", "tokenRequests"); !v.IsNull() {
				return strings.Join(list(v, "audience"), ",")
			}
			return unset
		}),
		boolean("RequiresRepublish", doc[storagev1.CSIDriverSpec]("requiresRepublish"),
			truth(false, "spec", "requiresRepublish")),
		str("Modes", doc[storagev1.CSIDriverSpec]("volumeLifecycleModes"), func(obj object.Value) any {
			return or(strings.Join(list(obj.At("spec", "volumeLifecycleModes")), ","), none)
		}),
		age,
	)

	CSINodes = of(name, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node",
		size("spec", "drivers")), age)

	CSIStorageCapacities Table

	StorageClasses = marking(isNewerDefault, of(
		name,
		str("Provisioner", doc[storagev1.StorageClass]("provisioner"), text("provisioner")),
		str("ReclaimPolicy", doc[storagev1.StorageClass]("reclaimPolicy"), presentOr("Delete", "reclaimPolicy")),
		str("VolumeBindingMode", doc[storagev1.StorageClass]("volumeBindingMode"),
			presentOr("Immediate", "volumeBindingMode")),
		str("AllowVolumeExpansion", doc[storagev1.StorageClass]("allowVolumeExpansion"),
			truth(false, "allowVolumeExpansion")),
		age,
	))

	VolumeAttachments = of(name,
		isName(str("Attacher", doc[storagev1.VolumeAttachmentSpec]("attacher"), text("spec", "attacher"))),
		str("PV", doc[storagev1.VolumeAttachmentSource]("persistentVolumeName"),
			text("spec", "source", "persistentVolumeName")),
		str("Node", doc[storagev1.VolumeAttachmentSpec]("nodeName"), text("spec", "nodeName")),
		boolean("Attached", doc[storagev1.VolumeAttachmentStatus]("attached"), truth(false, "status", "attached")),
		age,
	)

	VolumeAttributesClasses = of(name, str("DriverName", doc[storagev1.VolumeAttributesClass]("driverName"),
		text("driverName")), age)
)

// isNewerDefault says whether candidate is to be shown as the default StorageClass rather than current. If several are
// marked as such it is the newest, and among equally old ones the first by name. In the Table of a single class none is
// marked.
func isNewerDefault(candidate, current object.Value) bool {
	if !isDefaultClass(candidate.At("metadata", "annotations")) {
		return false
	}
	if current.IsNull() {
		return true
	}
	now, before := at(candidate.At("metadata", "creationTimestamp")), at(current.At("metadata", "creationTimestamp"))
	return now.After(before) || now.Equal(before) && candidate.At("metadata", "name").Str() < current.At("metadata",
		"name").Str()
}

func isDefaultClass(annotations object.Value) bool {
	return annotations.At("storageclass.kubernetes.io/is-default-class").Str() == "true" ||
		annotations.At("storageclass.beta.kubernetes.io/is-default-class").Str() == "true"
}
