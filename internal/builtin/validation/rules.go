package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// Rules are what the reference's validation has to say of one kind, its metadata excepted. A nil function has nothing
// to say.
type Rules struct {
	// Create says what is wrong with a new object.
	Create func(obj object.Value) field.ErrorList
	// Update says what is wrong with an object that is to replace old: what Create says of it, and what may not change.
	Update func(obj, old object.Value) field.ErrorList
	// Status is Update on the status subresource.
	Status func(obj, old object.Value) field.ErrorList
	// Approval is Update on the subresource through which certificates are approved.
	Approval func(obj, old object.Value) field.ErrorList
	// Running is what is wrong with a Pod after a write of one of its subresources: what Create says of it, but for
	// what holds for new Pods only and for what old excuses. What may change is the subresource's own to say.
	Running func(obj, old object.Value) field.ErrorList
}

// rule is what the kinds' files write: a function that adds to the errors found so far.
type rule struct {
	create func(f *errorList, obj object.Value)
	update func(f *errorList, obj, old object.Value)
	status func(f *errorList, obj, old object.Value)
	// approval is for the one kind that has this subresource.
	approval func(f *errorList, obj, old object.Value)
	// running is for Pods.
	running func(f *errorList, obj, old object.Value)
}

// kinds lists the rules by group and kind: every version of a kind has the same.
var kinds = map[[2]string]rule{
	{"", "ConfigMap"}:             {create: configMapCreate, update: configMapUpdate},
	{"", "Endpoints"}:             {create: endpointsCreate, update: endpointsUpdate},
	{"", "Event"}:                 coreEventKind,
	{"", "LimitRange"}:            {create: limitRangeCreate, update: limitRangeUpdate},
	{"", "Node"}:                  {create: nodeCreate, update: nodeUpdate, status: nodeStatus},
	{"", "PersistentVolume"}:      {create: volumeCreate, update: volumeUpdate, status: finalizersOnly.status},
	{"", "ResourceQuota"}:         {create: quotaCreate, update: quotaUpdate, status: quotaStatusUpdate},
	{"", "Namespace"}:             {create: namespaceCreate, update: finalizersOnly.update, status: namespaceStatus},
	{"", "PersistentVolumeClaim"}: {create: claimCreate, update: claimUpdate, status: claimStatus},
	{"", "Pod"}:                   {create: podCreate, update: podUpdate, status: podStatus, running: podRunning},
	{"", "PodTemplate"}:           podTemplateKind,
	{"", "ReplicationController"}: {create: replicationControllerCreate, update: replicationControllerUpdate,
		status: replicaStatus},
	{"", "Secret"}:         {create: secretCreate, update: secretUpdate},
	{"", "Service"}:        {create: serviceCreate, update: serviceUpdate, status: serviceStatus},
	{"", "ServiceAccount"}: finalizersOnly,

	{"autoscaling", "HorizontalPodAutoscaler"}: {create: autoscalerCreate, update: autoscalerUpdate,
		status: autoscalerStatus},
	{"coordination.k8s.io", "Lease"}: {create: leaseCreate, update: leaseUpdate},
	{"discovery.k8s.io", "EndpointSlice"}: {create: endpointSliceCreate,
		update: endpointSliceUpdate},
	{"events.k8s.io", "Event"}:                                     eventsEventKind,
	{"flowcontrol.apiserver.k8s.io", "FlowSchema"}:                 flowSchemaRules,
	{"flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"}: priorityLevelRules,
	{"networking.k8s.io", "Ingress"}: {create: ingressCreate, update: ingressUpdate,
		status: ingressStatus},
	{"networking.k8s.io", "IngressClass"}: {create: ingressClassCreate,
		update: ingressClassUpdate},
	{"networking.k8s.io", "IPAddress"}: {create: ipAddressCreate, update: ipAddressUpdate},
	{"networking.k8s.io", "NetworkPolicy"}: {create: networkPolicyCreate,
		update: networkPolicyUpdate},
	{"networking.k8s.io", "ServiceCIDR"}: {create: serviceCIDRCreate,
		update: serviceCIDRUpdate, status: finalizersOnly.status},
	{"node.k8s.io", "RuntimeClass"}: {create: runtimeClassCreate,
		update: runtimeClassUpdate},
	{"policy", "PodDisruptionBudget"}: {create: budgetCreate, update: budgetUpdate,
		status: budgetStatus},
	{rbacGroup, "ClusterRole"}: {create: clusterRoleCreate,
		update: clusterRoleUpdate},
	{rbacGroup, "ClusterRoleBinding"}: {create: clusterRoleBindingCreate,
		update: clusterRoleBindingUpdate},
	{rbacGroup, "Role"}: {create: roleCreate, update: roleUpdate},
	{rbacGroup, "RoleBinding"}: {create: roleBindingCreate,
		update: roleBindingUpdate},
	{"resource.k8s.io", "DeviceClass"}: {create: deviceClassCreate,
		update: deviceClassUpdate},
	{"resource.k8s.io", "DeviceTaintRule"}: {create: taintRuleCreate, update: taintRuleUpdate,
		status: taintRuleStatus},
	{"resource.k8s.io", "ResourceClaim"}: {create: resourceClaimCreate,
		update: resourceClaimUpdate, status: resourceClaimStatus},
	{"resource.k8s.io", "ResourceClaimTemplate"}: {create: claimTemplateCreate,
		update: claimTemplateUpdate},
	{"resource.k8s.io", "ResourceSlice"}: {create: resourceSliceCreate,
		update: resourceSliceUpdate},
	{"scheduling.k8s.io", "PriorityClass"}: {create: priorityClassCreate,
		update: priorityClassUpdate},
	{"storage.k8s.io", "CSIDriver"}:          {create: csiDriverCreate, update: csiDriverUpdate},
	{"storage.k8s.io", "CSINode"}:            {create: csiNodeCreate, update: csiNodeUpdate},
	{"storage.k8s.io", "CSIStorageCapacity"}: {create: capacityCreate, update: capacityUpdate},
	{"storage.k8s.io", "StorageClass"}: {create: storageClassCreate,
		update: storageClassUpdate},
	{"storage.k8s.io", "VolumeAttachment"}: {create: attachmentCreate, update: attachmentUpdate,
		status: attachmentUpdate},
	{"storage.k8s.io", "VolumeAttributesClass"}: {create: attributesClassCreate,
		update: attributesClassUpdate},

	{"admissionregistration.k8s.io", "MutatingAdmissionPolicy"}: {create: mutatingPolicyCreate,
		update: mutatingPolicyUpdate},
	{"admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"}: {create: mutatingBindingCreate,
		update: mutatingBindingUpdate},
	{"admissionregistration.k8s.io", "MutatingWebhookConfiguration"}: {create: webhooksCreate,
		update: webhooksUpdate},
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicy"}: {create: validatingPolicyCreate,
		update: validatingPolicyUpdate, status: validatingPolicyStatus},
	{"admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"}: {create: validatingBindingCreate,
		update: validatingBindingUpdate},
	{"admissionregistration.k8s.io", "ValidatingWebhookConfiguration"}: {create: webhooksCreate,
		update: webhooksUpdate},

	{"certificates.k8s.io", "CertificateSigningRequest"}: {create: signingRequestCreate, update: signingRequestUpdate,
		status: signingRequestStatus, approval: signingRequestApproval},
	{"certificates.k8s.io", "ClusterTrustBundle"}: {create: trustBundleCreate, update: trustBundleUpdate},
	{"certificates.k8s.io", "PodCertificateRequest"}: {create: podCertificateCreate, update: podCertificateUpdate,
		status: podCertificateStatus},
	{"storagemigration.k8s.io", "StorageVersionMigration"}: {create: migrationCreate, update: migrationUpdate,
		status: migrationStatus},

	{"apps", "ControllerRevision"}: {create: controllerRevisionCreate, update: controllerRevisionUpdate},
	{"apps", "DaemonSet"}:          {create: daemonSetCreate, update: daemonSetUpdate, status: daemonSetStatus},
	{"apps", "Deployment"}:         {create: deploymentCreate, update: deploymentUpdate, status: deploymentStatus},
	{"apps", "ReplicaSet"}:         {create: replicaSetCreate, update: replicaSetUpdate, status: replicaStatus},
	{"apps", "StatefulSet"}:        {create: statefulSetCreate, update: statefulSetUpdate, status: statefulSetStatus},

	{"batch", "CronJob"}: {create: cronJobCreate, update: cronJobUpdate, status: finalizersOnly.status},
	{"batch", "Job"}:     {create: jobCreate, update: jobUpdate, status: jobStatus},
}

// Options say how strict the rules are. The zero value is what the reference does by default.
type Options struct {
	// SloppyAddresses lets addresses and ranges pass that only some programs read: 010.0.0.1, and 10.0.0.1/24 for a
	// range (gate StrictIPCIDRValidation, turned off).
	SloppyAddresses bool
}

// For gives the rules of a kind, as strict as the reference is by default.
func For(group, version, kind string) Rules { return Options{}.For(group, version, kind) }

// For gives the rules of a kind.
func (o Options) For(group, version, kind string) Rules {
	r, ok := kinds[[2]string{group, kind}]
	if !ok {
		return Rules{}
	}
	if group == "autoscaling" && version == "v1" {
		r = autoscalerV1
	}
	var rules Rules
	if r.create != nil {
		rules.Create = func(obj object.Value) field.ErrorList {
			f := errorList{Options: o}
			r.create(&f, obj)
			return f.List
		}
	}
	rules.Update, rules.Status, rules.Approval = o.comparing(r.update), o.comparing(r.status), o.comparing(r.approval)
	rules.Running = o.comparing(r.running)
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
