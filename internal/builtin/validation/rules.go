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
}

// rule is what the kinds' files write: a function that adds to the faults found so far.
type rule struct {
	create func(f *faults, obj object.Value)
	update func(f *faults, obj, old object.Value)
	status func(f *faults, obj, old object.Value)
}

// kinds lists the rules by group and kind: every version of a kind has the same.
var kinds = map[[2]string]rule{
	{"", "ConfigMap"}:             {create: configMapCreate, update: configMapUpdate},
	{"", "Namespace"}:             {create: namespaceCreate, update: finalizersOnly.update, status: namespaceStatus},
	{"", "PersistentVolumeClaim"}: {create: claimCreate, update: claimUpdate, status: claimStatus},
	{"", "Pod"}:                   {create: podCreate, update: podUpdate},
	{"", "PodTemplate"}:           podTemplateKind,
	{"", "ReplicationController"}: {create: replicationControllerCreate, update: replicationControllerUpdate, status: replicaStatus},
	{"", "Secret"}:                {create: secretCreate, update: secretUpdate},
	{"", "Service"}:               {create: serviceCreate, update: serviceUpdate, status: serviceStatus},
	{"", "ServiceAccount"}:        finalizersOnly,

	{"apps", "ControllerRevision"}: {create: controllerRevisionCreate, update: controllerRevisionUpdate},
	{"apps", "DaemonSet"}:          {create: daemonSetCreate, update: daemonSetUpdate, status: daemonSetStatus},
	{"apps", "Deployment"}:         {create: deploymentCreate, update: deploymentUpdate, status: deploymentStatus},
	{"apps", "ReplicaSet"}:         {create: replicaSetCreate, update: replicaSetUpdate, status: replicaStatus},
	{"apps", "StatefulSet"}:        {create: statefulSetCreate, update: statefulSetUpdate, status: statefulSetStatus},

	{"batch", "CronJob"}: {create: cronJobCreate, update: cronJobUpdate, status: finalizersOnly.status},
	{"batch", "Job"}:     {create: jobCreate, update: jobUpdate, status: jobStatus},
}

// For gives the rules of a kind.
func For(group, version, kind string) Rules {
	r, ok := kinds[[2]string{group, kind}]
	if !ok {
		return Rules{}
	}
	var rules Rules
	if r.create != nil {
		rules.Create = func(obj object.Value) field.ErrorList {
			var f faults
			r.create(&f, obj)
			return f.list
		}
	}
	if r.update != nil {
		rules.Update = func(obj, old object.Value) field.ErrorList {
			var f faults
			r.update(&f, obj, old)
			return f.list
		}
	}
	if r.status != nil {
		rules.Status = func(obj, old object.Value) field.ErrorList {
			var f faults
			r.status(&f, obj, old)
			return f.list
		}
	}
	return rules
}
