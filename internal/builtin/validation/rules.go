package validation

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/features"
	"plinth/object"
)

// Rules are the reference's validation of one kind, without its metadata. A nil function returns no errors.
type Rules struct {
	// Create returns the errors of a new object.
	Create func(obj object.Value) field.ErrorList
	// Update returns the errors of an object that replaces old: those of Create, and those for changes of immutable
	// fields.
	Update func(obj, old object.Value) field.ErrorList
	// Status is Update on the status subresource.
	Status func(obj, old object.Value) field.ErrorList
	// Approval is Update on the subresource through which certificates are approved.
	Approval func(obj, old object.Value) field.ErrorList
	// Running returns the errors of a Pod after a write of one of its subresources: those of Create, except for rules
	// that hold for new Pods only and for errors that old excuses. The subresource itself checks which fields may
	// change.
	Running func(obj, old object.Value) field.ErrorList
}

// Kind is the rules of one kind, as its file writes them: functions that add to the errors found so far. The row of
// the kind names it; [Kind.Rules] converts it to the form that the row needs.
type Kind struct {
	create func(f *errorList, obj object.Value)
	update func(f *errorList, obj, old object.Value)
	status func(f *errorList, obj, old object.Value)
	// approval is for the one kind that has this subresource.
	approval func(f *errorList, obj, old object.Value)
	// running is for Pods.
	running func(f *errorList, obj, old object.Value)
}

// The rules of each kind. They are the same for all of its versions; Events have separate rules in each of their two
// groups.
var (
	ConfigMap             = Kind{create: configMapCreate, update: configMapUpdate}
	Endpoints             = Kind{create: endpointsCreate, update: endpointsUpdate}
	CoreEvent             = coreEventKind
	LimitRange            = Kind{create: limitRangeCreate, update: limitRangeUpdate}
	Node                  = Kind{create: nodeCreate, update: nodeUpdate, status: nodeStatus}
	PersistentVolume      = Kind{create: volumeCreate, update: volumeUpdate, status: finalizersOnly.status}
	ResourceQuota         = Kind{create: quotaCreate, update: quotaUpdate, status: quotaStatusUpdate}
	Namespace             = Kind{create: namespaceCreate, update: finalizersOnly.update, status: namespaceStatus}
	PersistentVolumeClaim = Kind{create: claimCreate, update: claimUpdate, status: claimStatus}
	Pod                   = Kind{create: podCreate, update: podUpdate, status: podStatus, running: podRunning}
	PodTemplate           = podTemplateKind
	ReplicationController = Kind{create: replicationControllerCreate, update: replicationControllerUpdate,
		status: replicaStatus}
	Secret         = Kind{create: secretCreate, update: secretUpdate}
	Service        = Kind{create: serviceCreate, update: serviceUpdate, status: serviceStatus}
	ServiceAccount = finalizersOnly

	HorizontalPodAutoscaler = Kind{create: autoscalerCreate, update: autoscalerUpdate, status: autoscalerStatus}

	Lease          = Kind{create: leaseCreate, update: leaseUpdate}
	LeaseCandidate = Kind{create: candidateCreate, update: candidateUpdate}

	EndpointSlice = Kind{create: endpointSliceCreate, update: endpointSliceUpdate}

	EventsEvent = eventsEventKind

	FlowSchema                 = flowSchemaRules
	PriorityLevelConfiguration = priorityLevelRules

	Ingress       = Kind{create: ingressCreate, update: ingressUpdate, status: ingressStatus}
	IngressClass  = Kind{create: ingressClassCreate, update: ingressClassUpdate}
	IPAddress     = Kind{create: ipAddressCreate, update: ipAddressUpdate}
	NetworkPolicy = Kind{create: networkPolicyCreate, update: networkPolicyUpdate}
	ServiceCIDR   = Kind{create: serviceCIDRCreate, update: serviceCIDRUpdate, status: finalizersOnly.status}

	RuntimeClass = Kind{create: runtimeClassCreate, update: runtimeClassUpdate}

	PodDisruptionBudget = Kind{create: budgetCreate, update: budgetUpdate, status: budgetStatus}

	ClusterRole        = Kind{create: clusterRoleCreate, update: clusterRoleUpdate}
	ClusterRoleBinding = Kind{create: clusterRoleBindingCreate, update: clusterRoleBindingUpdate}
	Role               = Kind{create: roleCreate, update: roleUpdate}
	RoleBinding        = Kind{create: roleBindingCreate, update: roleBindingUpdate}

	DeviceClass           = Kind{create: deviceClassCreate, update: deviceClassUpdate}
	DeviceTaintRule       = Kind{create: taintRuleCreate, update: taintRuleUpdate, status: taintRuleStatus}
	ResourceClaim         = Kind{create: resourceClaimCreate, update: resourceClaimUpdate, status: resourceClaimStatus}
	ResourceClaimTemplate = Kind{create: claimTemplateCreate, update: claimTemplateUpdate}

	ResourcePoolStatusRequest = Kind{create: poolRequestCreate, update: poolRequestUpdate, status: poolRequestStatus}
	ResourceSlice             = Kind{create: resourceSliceCreate, update: resourceSliceUpdate}

	Eviction        = Kind{create: evictionCreate, update: evictionUpdate, status: evictionStatus}
	EvictionRequest = Kind{create: evictionRequestCreate, update: evictionRequestUpdate, status: evictionRequestStatus}

	CompositePodGroup = Kind{create: compositeGroupCreate, update: compositeGroupUpdate, status: compositeGroupStatus}
	PodGroup          = Kind{create: podGroupCreate, update: podGroupUpdate, status: podGroupStatus}
	PriorityClass     = Kind{create: priorityClassCreate, update: priorityClassUpdate}
	Workload          = Kind{create: workloadCreate, update: workloadUpdate}

	CSIDriver             = Kind{create: csiDriverCreate, update: csiDriverUpdate}
	CSINode               = Kind{create: csiNodeCreate, update: csiNodeUpdate, status: finalizersOnly.status}
	CSIStorageCapacity    = Kind{create: capacityCreate, update: capacityUpdate}
	StorageClass          = Kind{create: storageClassCreate, update: storageClassUpdate}
	VolumeAttachment      = Kind{create: attachmentCreate, update: attachmentUpdate, status: attachmentUpdate}
	VolumeAttributesClass = Kind{create: attributesClassCreate, update: attributesClassUpdate}

	MutatingAdmissionPolicy        = Kind{create: mutatingPolicyCreate, update: mutatingPolicyUpdate}
	MutatingAdmissionPolicyBinding = Kind{create: mutatingBindingCreate, update: mutatingBindingUpdate}
	MutatingWebhookConfiguration   = Kind{create: webhooksCreate, update: webhooksUpdate}
	ValidatingAdmissionPolicy      = Kind{create: validatingPolicyCreate, update: validatingPolicyUpdate,
		status: validatingPolicyStatus}
	ValidatingAdmissionPolicyBinding = Kind{create: validatingBindingCreate, update: validatingBindingUpdate}
	ValidatingWebhookConfiguration   = Kind{create: webhooksCreate, update: webhooksUpdate}

	CertificateSigningRequest = Kind{create: signingRequestCreate, update: signingRequestUpdate,
		status: signingRequestStatus, approval: signingRequestApproval}
	ClusterTrustBundle    = Kind{create: trustBundleCreate, update: trustBundleUpdate}
	PodCertificateRequest = Kind{create: podCertificateCreate, update: podCertificateUpdate,
		status: podCertificateStatus}

	APIService = Kind{create: apiServiceCreate, update: apiServiceUpdate, status: apiServiceStatus}

	StorageVersion = Kind{create: qualifiedCreate, status: storageVersionStatus}

	StorageVersionMigration = Kind{create: migrationCreate, update: migrationUpdate, status: migrationStatus}

	ControllerRevision = Kind{create: controllerRevisionCreate, update: controllerRevisionUpdate}
	DaemonSet          = Kind{create: daemonSetCreate, update: daemonSetUpdate, status: daemonSetStatus}
	Deployment         = Kind{create: deploymentCreate, update: deploymentUpdate, status: deploymentStatus}
	ReplicaSet         = Kind{create: replicaSetCreate, update: replicaSetUpdate, status: replicaStatus}
	StatefulSet        = Kind{create: statefulSetCreate, update: statefulSetUpdate, status: statefulSetStatus}

	CronJob = Kind{create: cronJobCreate, update: cronJobUpdate}
	Job     = Kind{create: jobCreate, update: jobUpdate, status: jobStatus}
)

// Converted are the rules of another version of the kind. They apply to the object that convert makes of one in that
// version: the reference validates the form that all versions have in common, and names its fields in errors.
func (k Kind) Converted(convert func(object.Value) object.Value) Kind {
	return Kind{
		create: func(f *errorList, obj object.Value) { k.create(f, convert(obj)) },
		update: func(f *errorList, obj, old object.Value) { k.update(f, convert(obj), convert(old)) },
		status: func(f *errorList, obj, old object.Value) { k.status(f, convert(obj), convert(old)) },
	}
}

// V1beta1 is Converted for v1beta1 of resource.k8s.io, in which the fields of the member exactly of a request for
// devices are in the request itself, and those of a device in its member basic. Generated rules check the object in its
// own version, and so name and print its fields as they are there. A status is the same in all versions.
func (k Kind) V1beta1(convert func(object.Value) object.Value) Kind {
	return Kind{
		create: func(f *errorList, obj object.Value) {
			f.v1beta1 = true
			k.create(f, convert(obj))
		},
		update: func(f *errorList, obj, old object.Value) {
			f.v1beta1 = true
			k.update(f, convert(obj), convert(old))
		},
		status: func(f *errorList, obj, old object.Value) { k.status(f, convert(obj), convert(old)) },
	}
}

// Options say how strict the rules are. The zero value is the reference's default.
type Options struct {
	Features features.Set // the gates that decide what is accepted
	// LatestExpressions accepts new expressions that older releases could not compile
	// (--min-compatibility-version=1.37).
	LatestExpressions bool
	// DevicesUnlisted says that expressions about devices may not use lists (cel.DeviceOptions).
	DevicesUnlisted bool
	// Now is the clock with which the beginning of a pod certificate is compared when it is issued. Nil accepts any
	// time.
	Now func() time.Time
}

// on says whether a gate is on.
func (o *Options) on(g features.Gate) bool { return o.Features.On(g) }

// Rules are the rules of a kind, as strict as the options say.
func (k Kind) Rules(o Options) Rules {
	var rules Rules
	if k.create != nil {
		rules.Create = func(obj object.Value) field.ErrorList {
			f := errorList{Options: o}
			k.create(&f, obj)
			return f.List
		}
	}
	rules.Update, rules.Status, rules.Approval = o.comparing(k.update), o.comparing(k.status), o.comparing(k.approval)
	rules.Running = o.comparing(k.running)
	return rules
}

func (o Options) comparing(rule func(f *errorList, obj, old object.Value)) func(obj, old object.Value) field.ErrorList {
	if rule == nil {
		return nil
	}
	return func(obj, old object.Value) field.ErrorList {
		f := errorList{Options: o}
		rule(&f, obj, old)
		return f.List
	}
}
