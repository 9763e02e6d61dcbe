package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// This file has the rules of groups with one small kind: scheduling.k8s.io, node.k8s.io, policy,
// storagemigration.k8s.io.

const (
	systemPriority       = "system-"
	highestUserPriority  = 1_000_000_000
	nodeCritical         = "system-node-critical"
	clusterCritical      = "system-cluster-critical"
	clusterCriticalValue = 2 * highestUserPriority
	nodeCriticalValue    = clusterCriticalValue + 1000
)

// systemPriorityFault returns why a class cannot have a name that is reserved for Kubernetes.
func systemPriorityFault(name string, value int64, globalDefault bool) string {
	want := int64(0)
	switch name {
	case nodeCritical:
		want = nodeCriticalValue
	case clusterCritical:
		want = clusterCriticalValue
	default:
		return name + " is not a known system priority class"
	}
	if value != want {
		return fmt.Sprintf("value of %v PriorityClass must be %v", name, want)
	}
	if globalDefault {
		return fmt.Sprintf("globalDefault of %v PriorityClass must be false", name)
	}
	return ""
}

func priorityClassCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	name, value := text(obj.At("metadata"), "name"), number(obj, "value")
	if strings.HasPrefix(name, systemPriority) {
		if why := systemPriorityFault(name, value, truth(obj, "globalDefault")); why != "" {
			f.Forbidden(root.To("metadata").To("name"),
				"priority class names with 'system-' prefix are reserved for system use only. error: "+why)
		}
	} else if value > highestUserPriority {
		f.Forbidden(root.To("value"), "maximum allowed value of a user defined priority is 1000000000")
	}
	f.oneOf(root.To("preemptionPolicy"), text(obj, "preemptionPolicy"), preemptionPolicies)
}

func priorityClassUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	var root *fielderrors.Location
	if number(obj, "value") != number(old, "value") {
		f.Forbidden(root.To("value"), "may not be changed in an update.")
	}
	if policy := obj.At("preemptionPolicy"); !object.Equal(policy, old.At("preemptionPolicy")) {
		f.Invalid(root.To("preemptionPolicy"), fielderrors.Show(policy), fielderrors.Immutable)
	}
}

func runtimeClassCreate(f *errorList, obj object.Value) { // its finalizers need no domain
	var root *fielderrors.Location
	f.requiredShortName(root.To("handler"), text(obj, "handler"))
	fixed := obj.At("overhead", "podFixed")
	f.resourceList(fixed, root.To("overhead").To("limits"), containerResource, leniency{})
	f.hugePagesNeedMore(fixed, object.Nil, root.To("overhead"))
	scheduling := obj.At("scheduling")
	objectmeta.Labels(&f.Errors, scheduling.At("nodeSelector"), root.To("scheduling").To("nodeSelector"))
	tolerations := scheduling.At("tolerations")
	f.tolerations(tolerations, leniency{}, root.To("scheduling").To("tolerations"))
	met := map[[4]string]bool{}
	for i, t := range tolerations.Items() {
		key := [4]string{text(t, "key"), text(t, "operator"), text(t, "value"), text(t, "effect")}
		if met[key] {
			f.Duplicate(root.To("scheduling").To("tolerations").Item(i), goForm{t, tolerationFields})
		}
		met[key] = true
	}
}

var tolerationFields = []goField{{name: "Key", member: "key", zero: `""`},
	{name: "Operator", member: "operator", zero: `""`},
	{name: "Value", member: "value", zero: `""`}, {name: "Effect", member: "effect", zero: `""`},
	{name: "TolerationSeconds", member: "tolerationSeconds"}}

func runtimeClassUpdate(f *errorList, obj, old object.Value) {
	runtimeClassCreate(f, obj)
	if text(obj, "handler") != text(old, "handler") {
		f.changed((*fielderrors.Location)(nil).To("handler"))
	}
}

var (
	evictionPolicies = []string{"AlwaysAllow", "IfHealthyBudget"}
	budgetFields     = []goField{{name: "MinAvailable", member: "minAvailable"},
		{name: "Selector", member: "selector", order: selectorOrder},
		{name: "MaxUnavailable", member: "maxUnavailable"},
		{name: "UnhealthyPodEvictionPolicy", member: "unhealthyPodEvictionPolicy"}}
)

func budgetCreate(f *errorList, obj object.Value) { f.budget(obj.At("spec"), false) }

func budgetUpdate(f *errorList, obj, old object.Value) {
	f.budget(obj.At("spec"), badLabelValue(old.At("spec", "selector", "matchExpressions")))
}

// budget checks the number of pods that may be disrupted at a time.
func (f *errorList) budget(spec object.Value, lenient bool) {
	p := (*fielderrors.Location)(nil).To("spec")
	if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
		f.Invalid(p, goForm{spec, budgetFields}, "minAvailable and maxUnavailable cannot be both set")
	}
	for _, key := range [...]string{"minAvailable", "maxUnavailable"} {
		f.intOrPercent(p.To(key), spec.At(key))
		f.atMost100Percent(p.To(key), spec.At(key))
	}
	f.labelSelector(spec.At("selector"), p.To("selector"), lenient)
	f.onlyIfSet(p.To("unhealthyPodEvictionPolicy"), spec.At("unhealthyPodEvictionPolicy"), evictionPolicies)
}

func budgetStatus(f *errorList, obj, _ object.Value) {
	p := (*fielderrors.Location)(nil).To("status")
	status := obj.At("status")
	f.conditions(status.At("conditions"), p.To("conditions"))
	f.nonNegativeMembers(status, p, "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
}

var migrationFields = []goField{{name: "Resource", member: "resource",
	inner: []goField{{name: "group", member: "group"}, {name: "resource", member: "resource"}}}}

func migrationCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec").To("resource")
	of := obj.At("spec", "resource")
	if name := text(of, "resource"); name == "" {
		f.Required(p.To("resource"), "resource is required to be set")
	} else if wrong := utilvalidation.IsDNS1035Label(name); len(wrong) > 0 {
		f.Invalid(p.To("resource"), name, strings.Join(wrong, ","))
	}
	if group := text(of, "group"); group != "" {
		if wrong := objectmeta.SubdomainErrors(group); len(wrong) > 0 {
			f.Invalid(p.To("group"), group, strings.Join(wrong, ","))
		}
	}
}

func migrationUpdate(f *errorList, obj, old object.Value) {
	migrationCreate(f, obj)
	if spec := obj.At("spec"); !same(spec, old.At("spec")) {
		f.Invalid((*fielderrors.Location)(nil).To("spec"), goForm{spec, migrationFields}, fielderrors.Immutable)
	}
}

func migrationStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("status")
	status, previous := obj.At("status"), old.At("status")
	version := text(status, "resourceVersion")
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			f.Invalid(p.To("resourceVersion"), version, err.Error())
		}
	}
	f.conditions(status.At("conditions"), p.To("conditions"))
	if before := text(previous, "resourceVersion"); before != "" && before != version {
		f.Invalid(p.To("resourceVersion"), version, fielderrors.Immutable)
	}
	// If a type is repeated, its first condition counts.
	holds := func(status object.Value, kind string) bool {
		conditions := ofType(status.At("conditions"), kind)
		return len(conditions) > 0 && text(conditions[0], "status") == "True"
	}
	complain := func(detail string) {
		f.Invalid(p.To("conditions"), fielderrors.ShowList(status.At("conditions"), conditionOrder), detail)
	}
	if holds(status, "Succeeded") && holds(status, "Failed") {
		complain("Both success and failed conditions cannot be true at the same time")
	}
	if holds(previous, "Succeeded") && !holds(status, "Succeeded") {
		complain("Success condition cannot be set to false once it is true")
	}
	if holds(previous, "Failed") && !holds(status, "Failed") {
		complain("Failed condition cannot be set to false once it is true")
	}
}

var conditionOrder = []string{"type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"}
