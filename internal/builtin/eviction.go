package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// evictionOptions returns the DeleteOptions in an Eviction.
func evictionOptions(eviction object.Value, dryRun bool) (o engine.DeleteOptions, refusal, err error) {
	asked := eviction.At("deleteOptions")
	if asked.At("ignoreStoreReadErrorWithClusterBreakingPotential").Bool() {
		path := field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential")
		return o, nil, apierr.NewInvalid(apierr.Type{Group: "policy", Name: "Eviction"},
			eviction.At("metadata", "name").Str(), field.ErrorList{
				field.Invalid(path, true, "can not be set for pod eviction, try after removing the option"),
			})
	}
	var dry []string
	for _, value := range asked.At("dryRun").Items() {
		dry = append(dry, value.Str())
	}
	if all := []string{metav1.DryRunAll}; dryRun && len(dry) > 0 && !slices.Equal(dry, all) {
		return o, nil, &apierr.Error{Code: 500,
			Message: fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", all, dry)}
	}
	o = engine.DeleteOptions{
		PreconditionUID:   asked.At("preconditions", "uid").Str(),
		PreconditionRV:    asked.At("preconditions", "resourceVersion").Str(),
		PropagationPolicy: asked.At("propagationPolicy").Str(),
		DryRun:            len(dry) > 0,
	}
	if orphan := asked.At("orphanDependents"); !orphan.IsNull() {
		holds := orphan.Bool()
		o.OrphanDependents = &holds
	}
	if grace := asked.At("gracePeriodSeconds"); !grace.IsNull() {
		seconds := grace.Int()
		o.GracePeriodSeconds = &seconds
	}
	var policy *string
	if p := asked.At("propagationPolicy"); !p.IsNull() {
		policy = &o.PropagationPolicy
	}
	errs := engine.ValidatePropagation(policy, o.OrphanDependents)
	if slices.ContainsFunc(dry, func(value string) bool { return value != metav1.DryRunAll }) {
		errs = append(errs, field.NotSupported(field.NewPath("dryRun"), dry, []string{metav1.DryRunAll}))
	}
	if len(errs) > 0 {
		refusal = apierr.NewInvalid(apierr.Type{Group: metav1.GroupName, Name: "DeleteOptions"}, "", errs)
	}
	return o, refusal, nil
}

// manyDisrupted limits the evictions that the controller of budgets has not confirmed yet.
const manyDisrupted = 2000

// decideEviction decides whether the PodDisruptionBudgets of a namespace allow the eviction of a Pod, as the
// reference's EvictionREST does. A Pod that is not running may always be evicted. One that is not ready may be if
// enough others are healthy, or if the budget's unhealthyPodEvictionPolicy is AlwaysAllow. Any other one uses one of
// the disruptions that its budget allows, which is recorded in the budget's status.
func decideEviction(pod object.Value, budgets []object.Value, now time.Time) (engine.Decision, error) {
	free := engine.Decision{Budget: -1}
	switch pod.At("status", "phase").Str() {
	case "Succeeded", "Failed", "Pending":
		return free, nil
	}
	if !pod.At("metadata", "deletionTimestamp").IsNull() {
		return free, nil
	}
	var its []int
	for i, budget := range budgets {
		if selects(budget.At("spec", "selector"), pod.At("metadata", "labels")) {
			its = append(its, i)
		}
	}
	switch len(its) {
	case 0:
		return free, nil
	case 1:
	default:
		return free, &apierr.Error{
			Code:    500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}
	}
	budget := budgets[its[0]]
	status := budget.At("status")
	healthy, desired := status.At("currentHealthy").Int(), status.At("desiredHealthy").Int()
	if !podReady(pod) && (budget.At("spec", "unhealthyPodEvictionPolicy").Str() == string(policyv1.AlwaysAllow) ||
		healthy >= desired && desired > 0) {
		return free, nil
	}
	if err := disruptable(budget); err != nil {
		return free, err
	}
	name := pod.At("metadata", "name").Str()
	left := status.At("disruptionsAllowed").Int() - 1
	disrupted := status.At("disruptedPods").With(name, object.StringOf(now.UTC().Format(time.RFC3339)))
	status = status.With("disruptionsAllowed", object.IntOf(left)).With("disruptedPods", disrupted)
	if left == 0 {
		status = status.With("conditions", exhausted(status, now))
	}
	return engine.Decision{Budget: its[0], Status: status}, nil
}

// disruptable returns an error if the budget does not allow a disruption now.
func disruptable(budget object.Value) error {
	name, status := budget.At("metadata", "name").Str(), budget.At("status")
	because := func(err *apierr.Error, format string, args ...any) error {
		err.Details.Causes = append(err.Details.Causes, apierr.Cause{
			Reason:  string(policyv1.DisruptionBudgetCause),
			Message: fmt.Sprintf("The disruption budget "+name+" "+format, args...),
		})
		return err
	}
	const violates = "Cannot evict pod as it would violate the pod's disruption budget."
	forbidden := func(why string) *apierr.Error {
		return apierr.NewForbidden(apierr.Type{Group: "policy", Name: "poddisruptionbudget"}, name, why)
	}
	const notNow = "does not allow evicting pods currently"
	switch allowed := status.At("disruptionsAllowed").Int(); {
	case status.At("observedGeneration").Int() < budget.At("metadata", "generation").Int():
		return because(apierr.NewTooManyRequests(violates, 10), "is still being processed by the server.")
	case allowed < 0:
		return because(forbidden("pdb disruptions allowed is negative"), notNow+": pdb disruptions allowed is negative")
	case status.At("disruptedPods").Len() > manyDisrupted:
		return because(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
			notNow+": too many pending evictions not confirmed by PDB controller")
	case allowed > 0:
		return nil
	}
	refused := apierr.NewTooManyRequests(violates, 0)
	healthy, desired := status.At("currentHealthy").Int(), status.At("desiredHealthy").Int()
	var reason, message string
	for _, c := range status.At("conditions").Items() {
		if c.At("type").Str() == policyv1.DisruptionAllowedCondition && c.At("status").Str() == "False" {
			reason, message = c.At("reason").Str(), c.At("message").Str()
		}
	}
	switch {
	case message != "" && reason == policyv1.SyncFailedReason:
		return because(refused, notNow+" because it failed sync: %s", message)
	case healthy <= desired:
		return because(refused, "needs %d healthy pods and has %d currently", desired, healthy)
	case message != "":
		return because(refused, notNow+" (%s): %s", reason, message)
	}
	return because(refused, notNow)
}

// exhausted returns the conditions of a budget that allows no further disruption.
func exhausted(status object.Value, now time.Time) object.Value {
	current := object.Fields(
		"type", object.StringOf(policyv1.DisruptionAllowedCondition), "status", object.StringOf("False"),
		"reason", object.StringOf(policyv1.InsufficientPodsReason), "message", object.StringOf(""),
		"lastTransitionTime", object.StringOf(now.UTC().Format(time.RFC3339)))
	if generation := status.At("observedGeneration"); generation.Int() != 0 {
		current = current.With("observedGeneration", generation)
	}
	return withPodCondition(status.At("conditions"), current)
}

// markEvicted returns a Pod with the condition DisruptionTarget, which says why it is deleted.
func markEvicted(pod object.Value, now time.Time) object.Value {
	current := object.Fields(
		"type", object.StringOf("DisruptionTarget"), "status", object.StringOf("True"),
		"reason", object.StringOf("EvictionByEvictionAPI"), "message", object.StringOf("Eviction API: evicting"),
		"lastProbeTime", object.Nil, "lastTransitionTime", object.StringOf(now.UTC().Format(time.RFC3339)))
	return pod.WithAt(withPodCondition(pod.At("status", "conditions"), current), "status", "conditions")
}

// withPodCondition returns the conditions with this one set. If its status does not change, neither does its
// lastTransitionTime.
func withPodCondition(conditions, current object.Value) object.Value {
	for i, c := range conditions.Items() {
		if c.At("type").Str() != current.At("type").Str() {
			continue
		}
		if since := c.At("lastTransitionTime"); c.At("status").Str() == current.At("status").Str() && !since.IsNull() {
			current = current.With("lastTransitionTime", since)
		}
		return conditions.WithItem(i, current)
	}
	return object.ListOf(append(slices.Clone(conditions.Items()), current)...)
}

func podReady(pod object.Value) bool {
	for _, c := range pod.At("status", "conditions").Items() {
		if c.At("type").Str() == "Ready" {
			return c.At("status").Str() == "True"
		}
	}
	return false
}

// selects says whether a LabelSelector selects these labels: a null one selects nothing, and an empty one everything.
func selects(selector, of object.Value) bool {
	s, err := labelSelector(selector)
	if err != nil {
		return false // an object from before it was validated
	}
	set := labels.Set{}
	for _, m := range of.Members() {
		set[m.Key] = m.Value.Str()
	}
	return s.Matches(set)
}

// labelSelector compiles a LabelSelector.
func labelSelector(v object.Value) (labels.Selector, error) {
	if v.IsNull() {
		return labels.Nothing(), nil
	}
	s := labels.NewSelector()
	add := func(key string, op selection.Operator, values []string) error {
		r, err := labels.NewRequirement(strings.Clone(key), op, values)
		if err == nil {
			s = s.Add(*r)
		}
		return err
	}
	for _, m := range v.At("matchLabels").Members() {
		if err := add(m.Key, selection.Equals, []string{m.Value.Str()}); err != nil {
			return nil, err
		}
	}
	operators := map[string]selection.Operator{
		"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists,
		"DoesNotExist": selection.DoesNotExist,
	}
	for _, e := range v.At("matchExpressions").Items() {
		op, known := operators[e.At("operator").Str()]
		if !known {
			return nil, errors.New("no operator of label selectors")
		}
		var values []string
		for _, value := range e.At("values").Items() {
			values = append(values, value.Str())
		}
		if err := add(e.At("key").Str(), op, values); err != nil {
			return nil, err
		}
	}
	return s, nil
}
