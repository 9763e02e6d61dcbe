package admission

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// priority is the plugin Priority: it computes the priority of a Pod, and of a group of Pods, from its PriorityClass,
// and sees to it that at most one class is the default.
type priority struct {
	objects  *objects
	features features.Set
	// fallback returns the default class; null: there is none.
	fallback func(ctx context.Context, a *engine.Attributes) (object.Value, error)
}

var priorityClasses = kindOf{schedulingv1.GroupName, "v1", "priorityclasses"}

func newPriority(c *Config) (steps, error) {
	p := &priority{objects: c.objects, features: c.Features}
	p.fallback = c.objects.defaultOf(priorityClasses,
		func(obj object.Value) bool { return obj.At("globalDefault").Bool() }, lowest)
	return steps{admit: p.admit, validate: p.validate}, nil
}

// lowest says whether class a has a lower value than b; of two that have the same, the first name precedes. There
// should be only one default; of several the lowest counts.
func lowest(a, b object.Value) bool {
	if x, y := a.At("value").Int(), b.At("value").Int(); x != y {
		return x < y
	}
	return a.At("metadata", "name").Str() < b.At("metadata", "name").Str()
}

func (p *priority) admit(ctx context.Context, a *engine.Attributes) error {
	if a.Operation == engine.OperationCreate && a.Request.Resource.Group == schedulingv1.GroupName {
		switch {
		case about(a, schedulingv1.GroupName, "podgroups", ""):
			return p.group(ctx, a, features.GenericWorkload, "pod group")
		case about(a, schedulingv1.GroupName, "compositepodgroups", ""):
			return p.group(ctx, a, features.CompositePodGroup, "composite pod group")
		}
	}
	switch {
	case !about(a, "", "pods", ""):
		return nil
	case a.Operation == engine.OperationUpdate:
		p.keep(a)
		return nil
	case a.Operation != engine.OperationCreate:
		return nil
	}
	return p.compute(ctx, a, "pod", true, func(given, value int64) string {
		return fmt.Sprintf("the integer value of priority (%d) must not be provided in pod spec; priority "+
			"admission controller computed %d from the given PriorityClass name", given, value)
	})
}

// group computes the priority of a PodGroup or a CompositePodGroup, if the gate of the type is on.
func (p *priority) group(ctx context.Context, a *engine.Attributes, gate features.Gate, what string) error {
	if !p.features.On(gate) {
		return nil
	}
	return p.compute(ctx, a, what, p.features.On(features.PodGroupPreemptionPolicy), func(given, value int64) string {
		return fmt.Sprintf("priority set in the %s (%d) must match the priority computed (%d) based on the priority "+
			"class set in the spec", what, given, value)
	})
}

// compute sets the priority in a spec, and the preemption policy if preempts. differs is the error of a spec that has
// another priority.
func (p *priority) compute(ctx context.Context, a *engine.Attributes, what string, preempts bool,
	differs func(given, value int64) string) error {
	spec := a.Object.At("spec")
	name, value, policy, err := p.resolve(ctx, a, spec.At("priorityClassName").Str())
	if err != nil {
		return err
	}
	if given := spec.At("priority"); !given.IsNull() && given.Int() != value {
		return forbidden(a, differs(given.Int(), value))
	}
	set := []object.Member{{Key: "priority", Value: object.IntOf(value)}}
	if name != spec.At("priorityClassName").Str() {
		set = append(set, object.Member{Key: "priorityClassName", Value: object.StringOf(name)})
	}
	if preempts && policy != "" {
		if given := spec.At("preemptionPolicy"); !given.IsNull() && given.Str() != policy {
			return forbidden(a, fmt.Sprintf("the string value of PreemptionPolicy (%s) must not be provided in %s spec; "+
				"priority admission controller computed %s from the given PriorityClass name", given.Str(), what, policy))
		}
		set = append(set, object.Member{Key: "preemptionPolicy", Value: object.StringOf(policy)})
	}
	a.Object = a.Object.With("spec", spec.Edit(set))
	return nil
}

// keep takes what an update leaves out from the old Pod: clients that do not know the fields do not send them.
func (p *priority) keep(a *engine.Attributes) {
	for _, key := range []string{"priority", "preemptionPolicy"} {
		if old := a.Old.At("spec", key); !old.IsNull() && a.Object.At("spec", key).IsNull() {
			a.Object = a.Object.WithAt(old, "spec", key)
		}
	}
}

// resolve returns the name, the value and the preemption policy of the class of this name, or of the default one for
// "". A policy of "" is none.
func (p *priority) resolve(ctx context.Context, a *engine.Attributes, name string) (string, int64, string, error) {
	var class object.Value
	var err error
	if name == "" {
		if class, err = p.fallback(ctx, a); err != nil {
			return "", 0, "", err
		}
		if class.IsNull() {
			return "", 0, string(corev1.PreemptLowerPriority), nil
		}
	} else {
		if class, err = p.objects.get(ctx, priorityClasses, "", name); err != nil {
			return "", 0, "", unknown(fmt.Sprintf("failed to resolve PriorityClass with name %s: %v", name, err))
		}
		if class.IsNull() {
			return "", 0, "", forbidden(a, fmt.Sprintf("no PriorityClass with name %v was found", name))
		}
	}
	return class.At("metadata", "name").Str(), class.At("value").Int(), class.At("preemptionPolicy").Str(), nil
}

func (p *priority) validate(ctx context.Context, a *engine.Attributes) error {
	if !writes(a) || !about(a, schedulingv1.GroupName, "priorityclasses", "") || !a.Object.At("globalDefault").Bool() {
		return nil
	}
	class, err := p.fallback(ctx, a)
	if err != nil {
		return err
	}
	present := class.At("metadata", "name").Str()
	if present == "" || a.Operation == engine.OperationUpdate && present == a.Object.At("metadata", "name").Str() {
		return nil
	}
	return forbidden(a, fmt.Sprintf("PriorityClass %v is already marked as default. Only one default can exist", present))
}
