// Package warnings has the warnings about built-in objects, with the texts of the reference: about fields and values
// that are valid but deprecated or without the expected effect. kubectl prints them.
//
// A rule is a function over values that have passed validation. It takes the prefix of the paths in its texts
// ("spec.template."), and builds a path only for a warning: most objects are written without any.
package warnings

import (
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"plinth/internal/engine"
	"plinth/object"
)

// Rules are the warnings of one kind. A nil function returns none.
type Rules struct {
	// Create checks a new object; sent is the object before it was prepared.
	Create func(obj, sent object.Value) []string
	Update func(obj, old object.Value) []string
	// Status is Update on the status subresource.
	Status func(obj, old object.Value) []string
	Delete func(o engine.DeleteOptions) []string
}

// The rules of each kind, which are the same for all of its versions.
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

// alone is a rule that depends on one object only.
func alone(rule func(obj object.Value) []string) func(obj, other object.Value) []string {
	return func(obj, _ object.Value) []string { return rule(obj) }
}

// newGeneration says whether an update increments the generation.
func newGeneration(obj, old object.Value) bool {
	return obj.At("metadata", "generation").Int() != old.At("metadata", "generation").Int()
}

func annotated(meta object.Value, key string) bool {
	_, has := meta.At("annotations").Get(key)
	return has
}

// address warns of an IP address that is not in canonical form.
func address(path, value string) []string {
	// The value is a host name, or a text that validation has not checked; apimachinery would log it.
	if netutils.ParseIPSloppy(value) == nil {
		return nil
	}
	return utilvalidation.GetWarningsForIP(field.NewPath(path), value)
}

// network warns of a CIDR that is not in canonical form.
func network(path, value string) []string {
	if _, _, err := netutils.ParseCIDRSloppy(value); err != nil {
		return nil
	}
	return utilvalidation.GetWarningsForCIDR(field.NewPath(path), value)
}

// fraction warns of a number of bytes that is not an integer. path is that of the resource list.
func fraction(warnings []string, path func() string, amounts object.Value, name string) []string {
	q, err := resource.ParseQuantity(amounts.At(name).Str())
	if err != nil || q.MilliValue()%1000 == 0 {
		return warnings
	}
	return append(warnings, path()+"["+name+`]: fractional byte value "`+q.String()+`" is invalid, must be an integer`)
}
