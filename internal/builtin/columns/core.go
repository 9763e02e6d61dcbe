package columns

import (
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"plinth/object"
)

// The core group. Pods and Services have files of their own. LimitRanges have the common columns.
var (
	ComponentStatuses = of(name,
		str("Status", "Status of the component conditions", componentHealth),
		str("Message", "Message of the component conditions", healthText("message")),
		str("Error", "Error of the component conditions", healthText("error")),
	)

	ConfigMaps = of(name,
		str("Data", doc[corev1.ConfigMap]("data"), func(obj object.Value) any {
			return int64(obj.At("data").Len() + obj.At("binaryData").Len())
		}),
		age,
	)

	LimitRanges Table

	Namespaces = of(name, str("Status", "The status of the namespace", text("status", "phase")), age)

	Nodes = of(name,
		str("Status", "The status of the node", nodeStatus),
		str("Roles", "The roles of the node", nodeRoles),
		age,
		str("Version", doc[corev1.NodeSystemInfo]("kubeletVersion"), text("status", "nodeInfo", "kubeletVersion")),
		wide(str("Internal-IP", doc[corev1.NodeStatus]("addresses"), nodeAddress("InternalIP"))),
		wide(str("External-IP", doc[corev1.NodeStatus]("addresses"), nodeAddress("ExternalIP"))),
		wide(str("OS-Image", doc[corev1.NodeSystemInfo]("osImage"), textOr(unknown, "status", "nodeInfo", "osImage"))),
		wide(str("Kernel-Version", doc[corev1.NodeSystemInfo]("kernelVersion"), nodeKernel)),
		wide(str("Container-Runtime", doc[corev1.NodeSystemInfo]("containerRuntimeVersion"),
			textOr(unknown, "status", "nodeInfo", "containerRuntimeVersion"))),
	)

	ReplicationControllers = of(
		name,
		integer("Desired", doc[corev1.ReplicationControllerSpec]("replicas"), whole("spec", "replicas")),
		integer("Current", doc[corev1.ReplicationControllerStatus]("replicas"), whole("status", "replicas")),
		integer("Ready", doc[corev1.ReplicationControllerStatus]("readyReplicas"), whole("status", "readyReplicas")),
		age,
		containers("spec", "template", "spec")[0], containers("spec", "template", "spec")[1],
		wide(str("Selector", doc[corev1.ReplicationControllerSpec]("selector"), labels("spec", "selector"))),
	)

	ResourceQuotas = of(name,
		str("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", quota(false)),
		str("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", quota(true)),
		age,
	)

	Secrets = of(name,
		str("Type", doc[corev1.Secret]("type"), text("type")),
		str("Data", doc[corev1.Secret]("data"), size("data")),
		age,
	)

	ServiceAccounts = of(name, age)
)

func componentHealth(obj object.Value) any {
	c, has := condition(obj.At("conditions"), "Healthy")
	switch {
	case !has:
		return "Unknown"
	case isTrue(c):
		return "Healthy"
	}
	return "Unhealthy"
}

func healthText(field string) cell {
	return func(obj object.Value) any {
		c, _ := condition(obj.At("conditions"), "Healthy")
		return c.At(field).Str()
	}
}

func nodeStatus(obj object.Value) any {
	status := "Unknown"
	for _, c := range obj.At("status", "conditions").Items() { // the last one counts
		if c.At("type").Str() == "Ready" {
			status = "NotReady"
			if isTrue(c) {
				status = "Ready"
			}
		}
	}
	if obj.At("spec", "unschedulable").Bool() {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles are the roles that a Node's labels give it, in one of two notations.
func nodeRoles(obj object.Value) any {
	roles := sets.New[string]()
	for _, m := range obj.At("metadata", "labels").Members() {
		role, is := strings.CutPrefix(m.Key, "node-role.kubernetes.io/")
		if m.Key == "kubernetes.io/role" {
			role, is = m.Value.Str(), true
		}
		if is && role != "" {
			roles.Insert(role)
		}
	}
	return or(strings.Join(sets.List(roles), ","), none)
}

func nodeAddress(typ string) cell {
	return func(obj object.Value) any {
		c, has := condition(obj.At("status", "addresses"), typ)
		if !has {
			return none
		}
		return c.At("address").Str()
	}
}

func nodeKernel(obj object.Value) any {
	info := obj.At("status", "nodeInfo")
	kernel := or(info.At("kernelVersion").Str(), unknown)
	if architecture := info.At("architecture").Str(); architecture != "" {
		kernel += " (" + architecture + ")"
	}
	return kernel
}

// quota lists what is used of what there is, limits or all the rest.
func quota(limits bool) cell {
	return func(obj object.Value) any {
		hard, used := obj.At("status", "hard"), obj.At("status", "used")
		var parts []string
		for _, m := range hard.Members() {
			if strings.HasPrefix(m.Key, "limits.") == limits {
				parts = append(parts, m.Key+": "+or(used.At(m.Key).Str(), "0")+"/"+m.Value.Str())
			}
		}
		return strings.Join(parts, ", ")
	}
}

// CoreEvents and Events are the same table over the two versions of Events.
var (
	CoreEvents = eventTable("firstTimestamp", "lastTimestamp", "count", "involvedObject", "source", "reportingComponent", "reportingInstance", "message")
	Events     = eventTable("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "regarding",
		"deprecatedSource", "reportingController", "reportingInstance", "note")
)

func eventTable(first, last, count, about, source, controller, instance, message string) Table {
	firstSeen := func(obj object.Value) any {
		if v := obj.At(first); !v.IsNull() {
			return ago(v)
		}
		return ago(obj.At("eventTime"))
	}
	return of(
		str("Last Seen", doc[corev1.Event]("lastTimestamp"), func(obj object.Value) any {
			if series := obj.At("series"); !series.IsNull() {
				return ago(series.At("lastObservedTime"))
			}
			if v := obj.At(last); !v.IsNull() {
				return ago(v)
			}
			return firstSeen(obj)
		}),
		str("Type", doc[corev1.Event]("type"), text("type")),
		str("Reason", doc[corev1.Event]("reason"), text("reason")),
		str("Object", doc[corev1.Event]("involvedObject"), func(obj object.Value) any {
			target := strings.ToLower(obj.At(about, "kind").Str())
			if name := obj.At(about, "name").Str(); name != "" {
				target += "/" + name
			}
			return target
		}),
		wide(str("Subobject", doc[corev1.ObjectReference]("fieldPath"), text(about, "fieldPath"))),
		wide(str("Source", doc[corev1.Event]("source"), func(obj object.Value) any {
			from := or(obj.At(source, "component").Str(), obj.At(controller).Str())
			if host := or(obj.At(source, "host").Str(), obj.At(instance).Str()); host != "" {
				from += ", " + host
			}
			return from
		})),
		str("Message", doc[corev1.Event]("message"), func(obj object.Value) any {
			return strings.TrimSpace(obj.At(message).Str())
		}),
		wide(str("First Seen", doc[corev1.Event]("firstTimestamp"), firstSeen)),
		wide(str("Count", doc[corev1.Event]("count"), func(obj object.Value) any {
			if series := obj.At("series"); !series.IsNull() {
				return series.At("count").Int()
			}
			if n := obj.At(count).Int(); n != 0 {
				return n
			}
			return int64(1)
		})),
		wide(isName(str("Name", doc[metav1.ObjectMeta]("name"), text("metadata", "name")))),
	)
}

// Storage in the core group.
var (
	PersistentVolumeClaims = of(name,
		str("Status", doc[corev1.PersistentVolumeClaimStatus]("phase"), phaseOrTerminating),
		str("Volume", doc[corev1.PersistentVolumeClaimSpec]("volumeName"), text("spec", "volumeName")),
		str("Capacity", doc[corev1.PersistentVolumeClaimStatus]("capacity"), ifBound(func(obj object.Value) string {
			return or(obj.At("status", "capacity", "storage").Str(), "0")
		})),
		str("Access Modes", doc[corev1.PersistentVolumeClaimStatus]("accessModes"), ifBound(func(obj object.Value) string {
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
		str("Reclaim Policy", doc[corev1.PersistentVolumeSpec]("persistentVolumeReclaimPolicy"), text("spec", "persistentVolumeReclaimPolicy")),
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

// present is the text at the end of a path, even an empty one, or that it is not there.
func present(path ...string) cell {
	return func(obj object.Value) any {
		if v := obj.At(path...); !v.IsNull() {
			return v.Str()
		}
		return unset
	}
}

func phaseOrTerminating(obj object.Value) any {
	if deleted(obj) {
		return "Terminating"
	}
	return obj.At("status", "phase").Str()
}

// ifBound is for what a claim has once it has a volume.
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
