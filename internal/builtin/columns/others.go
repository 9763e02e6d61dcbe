package columns

import (
	"cmp"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"plinth/object"
)

// certificates.k8s.io
var (
	CertificateSigningRequests = of(name, age,
		str("SignerName", doc[certificatesv1beta1.CertificateSigningRequestSpec]("signerName"), textOr(none, "spec", "signerName")),
		str("Requestor", doc[certificatesv1beta1.CertificateSigningRequestSpec]("request"), text("spec", "username")),
		str("RequestedDuration", doc[certificatesv1beta1.CertificateSigningRequestSpec]("expirationSeconds"), func(obj object.Value) any {
			if v := obj.At("spec", "expirationSeconds"); !v.IsNull() {
				return duration.HumanDuration(time.Duration(v.Int()) * time.Second)
			}
			return none
		}),
		str("Condition", doc[certificatesv1beta1.CertificateSigningRequestStatus]("conditions"), requestState),
	)

	ClusterTrustBundles = of(name, str("SignerName", doc[certificatesv1.ClusterTrustBundleSpec]("signerName"), textOr(none, "spec", "signerName")))

	PodCertificateRequests = of(name,
		str("PodName", doc[certificatesv1.PodCertificateRequestSpec]("podName"), text("spec", "podName")),
		str("ServiceAccountName", doc[certificatesv1.PodCertificateRequestSpec]("serviceAccountName"), text("spec", "serviceAccountName")),
		str("NodeName", doc[certificatesv1.PodCertificateRequestSpec]("nodeName"), text("spec", "nodeName")),
		str("SignerName", doc[certificatesv1.PodCertificateRequestSpec]("signerName"), text("spec", "signerName")),
		str("State", "Is the request Pending, Issued, Denied, or Failed?", func(obj object.Value) any {
			state := "Pending"
			for _, c := range obj.At("status", "conditions").Items() {
				if t := c.At("type").Str(); t == "Issued" || t == "Denied" || t == "Failed" {
					state = t
				}
			}
			return state
		}),
		str("UnverifiedUserAnnotations", doc[certificatesv1.PodCertificateRequestSpec]("unverifiedUserAnnotations"), labels("spec", "unverifiedUserAnnotations")),
	)
)

func requestState(obj object.Value) any {
	conditions := obj.At("status", "conditions")
	has := func(typ string) bool {
		_, is := condition(conditions, typ)
		return is
	}
	state := "Pending"
	if has("Denied") {
		state = "Denied"
	} else if has("Approved") {
		state = "Approved"
	}
	if has("Failed") {
		state += ",Failed"
	}
	if obj.At("status", "certificate").Len() > 0 {
		state += ",Issued"
	}
	return state
}

// rbac.authorization.k8s.io; roles have the common columns.
var (
	ClusterRoles, Roles Table

	ClusterRoleBindings = bindings(doc[rbacv1beta1.ClusterRoleBinding]("roleRef"), "clusterRoleBinding")
	RoleBindings        = bindings(doc[rbacv1beta1.RoleBinding]("roleRef"), "roleBinding")
)

func bindings(role, kind string) Table {
	return of(name,
		str("Role", role, func(obj object.Value) any {
			return obj.At("roleRef", "kind").Str() + "/" + obj.At("roleRef", "name").Str()
		}),
		age,
		wide(str("Users", "Users in the "+kind, subjects("User"))),
		wide(str("Groups", "Groups in the "+kind, subjects("Group"))),
		wide(str("ServiceAccounts", "ServiceAccounts in the "+kind, subjects("ServiceAccount"))),
	)
}

func subjects(kind string) cell {
	return func(obj object.Value) any {
		var names []string
		for _, s := range obj.At("subjects").Items() {
			if s.At("kind").Str() != kind {
				continue
			}
			name := s.At("name").Str()
			if kind == "ServiceAccount" {
				name = s.At("namespace").Str() + "/" + name
			}
			names = append(names, name)
		}
		return strings.Join(names, ", ")
	}
}

// storage.k8s.io; CSIStorageCapacities have the common columns.
var (
	CSIDrivers = of(name,
		boolean("AttachRequired", doc[storagev1.CSIDriverSpec]("attachRequired"), truth(true, "spec", "attachRequired")),
		boolean("PodInfoOnMount", doc[storagev1.CSIDriverSpec]("podInfoOnMount"), truth(false, "spec", "podInfoOnMount")),
		boolean("StorageCapacity", doc[storagev1.CSIDriverSpec]("storageCapacity"), truth(false, "spec", "storageCapacity")),
		str("TokenRequests", doc[storagev1.CSIDriverSpec]("tokenRequests"), func(obj object.Value) any {
			if v := obj.At("spec", "tokenRequests"); !v.IsNull() {
				return strings.Join(list(v, "audience"), ",")
			}
			return unset
		}),
		boolean("RequiresRepublish", doc[storagev1.CSIDriverSpec]("requiresRepublish"), truth(false, "spec", "requiresRepublish")),
		str("Modes", doc[storagev1.CSIDriverSpec]("volumeLifecycleModes"), func(obj object.Value) any {
			return or(strings.Join(list(obj.At("spec", "volumeLifecycleModes")), ","), none)
		}),
		age,
	)

	CSINodes = of(name, integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node", size("spec", "drivers")), age)

	CSIStorageCapacities Table

	StorageClasses = marking(foremostClass, of(
		name,
		str("Provisioner", doc[storagev1.StorageClass]("provisioner"), text("provisioner")),
		str("ReclaimPolicy", doc[storagev1.StorageClass]("reclaimPolicy"), presentOr("Delete", "reclaimPolicy")),
		str("VolumeBindingMode", doc[storagev1.StorageClass]("volumeBindingMode"), presentOr("Immediate", "volumeBindingMode")),
		str("AllowVolumeExpansion", doc[storagev1.StorageClass]("allowVolumeExpansion"), truth(false, "allowVolumeExpansion")),
		age,
	))

	VolumeAttachments = of(name,
		isName(str("Attacher", doc[storagev1.VolumeAttachmentSpec]("attacher"), text("spec", "attacher"))),
		str("PV", doc[storagev1.VolumeAttachmentSource]("persistentVolumeName"), text("spec", "source", "persistentVolumeName")),
		str("Node", doc[storagev1.VolumeAttachmentSpec]("nodeName"), text("spec", "nodeName")),
		boolean("Attached", doc[storagev1.VolumeAttachmentStatus]("attached"), truth(false, "status", "attached")),
		age,
	)

	VolumeAttributesClasses = of(name, str("DriverName", doc[storagev1.VolumeAttributesClass]("driverName"), text("driverName")), age)
)

// marking is a table that marks one object of a list.
func marking(foremost func(obj, than object.Value) bool, t Table) Table {
	t.Foremost = foremost
	return t
}

// foremostClass says whether a StorageClass is the default one rather than another. Of several that are marked as such it
// is the newest, and among those that are equally old the first by name. One class alone is never shown as the default.
func foremostClass(obj, than object.Value) bool {
	if !isDefaultClass(obj.At("metadata", "annotations")) {
		return false
	}
	if than.IsNull() {
		return true
	}
	is, was := at(obj.At("metadata", "creationTimestamp")), at(than.At("metadata", "creationTimestamp"))
	return is.After(was) || is.Equal(was) && obj.At("metadata", "name").Str() < than.At("metadata", "name").Str()
}

func isDefaultClass(annotations object.Value) bool {
	return annotations.At("storageclass.kubernetes.io/is-default-class").Str() == "true" ||
		annotations.At("storageclass.beta.kubernetes.io/is-default-class").Str() == "true"
}

// admissionregistration.k8s.io
var (
	MutatingAdmissionPolicies = of(name,
		integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration", size("spec", "mutations")),
		paramKind, age,
	)
	MutatingAdmissionPolicyBindings = of(name, policyName, paramRef, age)
	MutatingWebhookConfigurations   = of(name, webhooks, age)
	ValidatingAdmissionPolicies     = of(name,
		integer("Validations", "Validations indicates the number of validation rules defined in this configuration", size("spec", "validations")),
		paramKind, age,
	)
	ValidatingAdmissionPolicyBindings = of(name, policyName, paramRef, age)
	ValidatingWebhookConfigurations   = of(name, webhooks, age)

	webhooks = integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", size("webhooks"))

	paramKind = str("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", func(obj object.Value) any {
		kind := obj.At("spec", "paramKind")
		if kind.IsNull() {
			return unset
		}
		return kind.At("apiVersion").Str() + "/" + kind.At("kind").Str()
	})

	policyName = str("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to", text("spec", "policyName"))

	paramRef = str("ParamRef", "ParamRef indicates the param resource which sets the configuration param", func(obj object.Value) any {
		ref := obj.At("spec", "paramRef")
		name, namespace := ref.At("name").Str(), ref.At("namespace").Str()
		switch {
		case name != "":
			return or(namespace, "*") + "/" + name
		case !ref.At("selector").IsNull():
			return labelSelector(ref.At("selector")).String()
		}
		return unset
	})
)

// coordination, node, scheduling, flowcontrol, resource, storagemigration
var (
	Leases = of(name, str("Holder", doc[coordinationv1.LeaseSpec]("holderIdentity"), text("spec", "holderIdentity")), age)

	RuntimeClasses = of(name, str("Handler", "", text("handler")), age)

	PriorityClasses = of(name,
		integer("Value", doc[schedulingv1.PriorityClass]("value"), whole("value")),
		boolean("Global-Default", doc[schedulingv1.PriorityClass]("globalDefault"), truth(false, "globalDefault")),
		age,
		str("PreemptionPolicy", doc[schedulingv1.PriorityClass]("preemptionPolicy"), text("preemptionPolicy")),
	)

	FlowSchemas = ordered(byPrecedence, of(
		name,
		str("PriorityLevel", doc[flowcontrolv1.PriorityLevelConfigurationReference]("name"), text("spec", "priorityLevelConfiguration", "name")),
		str("MatchingPrecedence", doc[flowcontrolv1.FlowSchemaSpec]("matchingPrecedence"), whole("spec", "matchingPrecedence")),
		str("DistinguisherMethod", doc[flowcontrolv1.FlowSchemaSpec]("distinguisherMethod"), func(obj object.Value) any {
			if m := obj.At("spec", "distinguisherMethod"); !m.IsNull() {
				return m.At("type").Str()
			}
			return none
		}),
		age,
		str("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(obj object.Value) any {
			if c, has := condition(obj.At("status", "conditions"), "Dangling"); has {
				return c.At("status").Str()
			}
			return "?"
		}),
	))

	PriorityLevelConfigurations = of(name,
		str("Type", doc[flowcontrolv1.PriorityLevelConfigurationSpec]("type"), text("spec", "type")),
		str("NominalConcurrencyShares", doc[flowcontrolv1.LimitedPriorityLevelConfiguration]("nominalConcurrencyShares"),
			within("limited", "nominalConcurrencyShares")),
		str("Queues", doc[flowcontrolv1.QueuingConfiguration]("queues"), within("limited", "limitResponse", "queuing", "queues")),
		str("HandSize", doc[flowcontrolv1.QueuingConfiguration]("handSize"), within("limited", "limitResponse", "queuing", "handSize")),
		str("QueueLengthLimit", doc[flowcontrolv1.QueuingConfiguration]("queueLengthLimit"), within("limited", "limitResponse", "queuing", "queueLengthLimit")),
		age,
	)

	DeviceClasses = of(name, age)

	DeviceTaintRules = of(name,
		str("Key", doc[resourcev1.DeviceTaint]("key"), text("spec", "taint", "key")),
		str("Value", doc[resourcev1.DeviceTaint]("value"), text("spec", "taint", "value")),
		str("Effect", doc[resourcev1.DeviceTaint]("effect"), text("spec", "taint", "effect")),
		str("TimeAdded", doc[resourcev1.DeviceTaint]("timeAdded"), func(obj object.Value) any {
			if v := obj.At("spec", "taint", "timeAdded"); !v.IsNull() {
				return ago(v)
			}
			return ""
		}),
		age,
	)

	ResourceClaims = of(name, str("State", "A summary of the current state (allocated, pending, reserved, etc.).", claimState), age)

	ResourceClaimTemplates = of(name, age)

	ResourceSlices = of(name,
		str("Node", doc[resourcev1.ResourceSliceSpec]("nodeName"), text("spec", "nodeName")),
		str("Driver", doc[resourcev1.ResourceSliceSpec]("driver"), text("spec", "driver")),
		str("Pool", doc[resourcev1.ResourcePool]("name"), text("spec", "pool", "name")),
		age,
	)

	StorageVersionMigrations = of(
		str("Name", name.Description, name.cell),
		str("Resource", "GroupResource to migrate", func(obj object.Value) any {
			resource := obj.At("spec", "resource", "resource").Str()
			if group := obj.At("spec", "resource", "group").Str(); group != "" {
				resource += "." + group
			}
			return resource
		}),
		str("Status", "Status of the migration", func(obj object.Value) any {
			status := "Unknown"
			for _, c := range obj.At("status", "conditions").Items() {
				if t := c.At("type").Str(); isTrue(c) && (t == "Running" || t == "Failed" || t == "Succeeded") {
					status = t
				}
			}
			return status
		}),
	)
)

// ordered is a table whose lists have an order of their own.
func ordered(order func(a, b object.Value) int, t Table) Table {
	t.RowOrder = order
	return t
}

// byPrecedence is the order in which requests are held against FlowSchemas.
func byPrecedence(a, b object.Value) int {
	return cmp.Or(
		cmp.Compare(a.At("spec", "matchingPrecedence").Int(), b.At("spec", "matchingPrecedence").Int()),
		cmp.Compare(a.At("metadata", "name").Str(), b.At("metadata", "name").Str()),
	)
}

// within is a number of a part of a priority level that not every one has.
func within(path ...string) cell {
	return func(obj object.Value) any {
		v := obj.At("spec")
		for _, key := range path[:len(path)-1] {
			if v = v.At(key); v.IsNull() {
				return none
			}
		}
		return v.At(path[len(path)-1]).Int()
	}
}

func claimState(obj object.Value) any {
	var states []string
	allocated := !obj.At("status", "allocation").IsNull()
	if deleted(obj) {
		states = append(states, "deleted")
	} else if !allocated {
		states = append(states, "pending")
	}
	if allocated {
		states = append(states, "allocated")
		if obj.At("status", "reservedFor").Len() > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}
