// Package warnings says what the writers of built-in types are warned of, in the words of the reference, which kubectl
// shows: things that are accepted and will not do what they look like.
//
// A rule is a function over values that have passed validation. It takes the beginning of the paths that it names
// ("spec.template."), and puts paths together only when it has something to say: most objects are written without any
// warning.
package warnings

import (
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"plinth/internal/engine"
	"plinth/object"
)

// Rules are the warnings of one kind. A nil function has nothing to say.
type Rules struct {
	// Create looks at a new object; sent is what it was before the kind prepared it.
	Create func(obj, sent object.Value) []string
	Update func(obj, old object.Value) []string
	// Status is Update on the status subresource.
	Status func(obj, old object.Value) []string
	Delete func(o engine.DeleteOptions) []string
}

// The rules of each kind; every version of a kind has the same.
var (
	Endpoints             = always(endpoints)
	Node                  = always(node)
	PersistentVolume      = always(volume)
	PersistentVolumeClaim = always(claim)
	Pod                   = Rules{Create: pod, Status: podStatus}
	PodTemplate           = template(false, "template")
	ReplicationController = Rules{Create: template(true, "spec", "template").Create, Update: controllerUpdate}
	ResourceQuota         = Rules{Create: alone(quota)}
	Secret                = always(secret)
	Service               = Rules{Create: alone(service), Update: alone(service), Status: balancerStatus}
	ServiceAccount        = Rules{Create: alone(account), Update: accountUpdate}

	MutatingAdmissionPolicy          = Rules{Update: reservedName}
	MutatingAdmissionPolicyBinding   = Rules{Update: reservedName}
	MutatingWebhookConfiguration     = Rules{Create: alone(webhooks), Update: webhooksUpdate}
	ValidatingAdmissionPolicy        = Rules{Update: reservedName, Status: reservedName}
	ValidatingAdmissionPolicyBinding = Rules{Update: reservedName}
	ValidatingWebhookConfiguration   = Rules{Create: alone(webhooks), Update: webhooksUpdate}

	DaemonSet          = Rules{Create: template(false, "spec", "template").Create, Update: daemonSetUpdate}
	Deployment         = template(true, "spec", "template")
	ReplicaSet         = template(true, "spec", "template")
	StatefulSet        = Rules{Create: alone(statefulSet), Update: statefulSetUpdate}
	CronJob            = Rules{Create: alone(cronJob), Update: cronJobUpdate}
	Job                = Rules{Create: alone(job), Update: jobUpdate, Delete: jobDelete}
	EndpointSlice      = Rules{Create: alone(slice), Update: alone(sliceAddresses)}
	Ingress            = Rules{Create: alone(ingress), Status: balancerStatus}
	NetworkPolicy      = always(networkPolicy)
	RuntimeClass       = always(runtimeClass)
	ResourceSlice      = always(resourceSlice)
	CSIDriver          = Rules{Create: alone(driver), Update: driverUpdate}
	CSIStorageCapacity = always(capacity)
	StorageClass       = always(class)
)

// always is a rule for new and changed objects.
func always(rule func(obj object.Value) []string) Rules {
	return Rules{Create: alone(rule), Update: alone(rule)}
}

// alone is a rule that looks at one object only.
func alone(rule func(obj object.Value) []string) func(obj, other object.Value) []string {
	return func(obj, _ object.Value) []string { return rule(obj) }
}

// newGeneration says whether an update changes what the object is meant to be.
func newGeneration(obj, old object.Value) bool {
	return obj.At("metadata", "generation").Int() != old.At("metadata", "generation").Int()
}

func annotated(meta object.Value, key string) bool {
	_, has := meta.At("annotations").Get(key)
	return has
}

// address warns of an IP address that is not written as it should be.
func address(path, value string) []string {
	// a host name, or what validation has not looked at; apimachinery would log it
	if netutils.ParseIPSloppy(value) == nil {
		return nil
	}
	return utilvalidation.GetWarningsForIP(field.NewPath(path), value)
}

// network warns of a range of addresses that is not written as it should be.
func network(path, value string) []string {
	if _, _, err := netutils.ParseCIDRSloppy(value); err != nil {
		return nil
	}
	return utilvalidation.GetWarningsForCIDR(field.NewPath(path), value)
}

// fraction warns of an amount of bytes that is not whole. path is where amounts stand.
func fraction(warnings []string, path func() string, amounts object.Value, name string) []string {
	q, err := resource.ParseQuantity(amounts.At(name).Str())
	if err != nil || q.MilliValue()%1000 == 0 {
		return warnings
	}
	return append(warnings, path()+"["+name+`]: fractional byte value "`+q.String()+`" is invalid, must be an integer`)
}
