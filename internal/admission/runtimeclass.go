package admission

import (
	"context"
	"fmt"

	"plinth/internal/engine"
	"plinth/object"
)

// runtimeClass is the plugin RuntimeClass: a Pod gets the overhead, the node selector and the tolerations of its class.
type runtimeClass struct{ objects *objects }

func newRuntimeClass(c *Config) (steps, error) {
	p := &runtimeClass{c.objects}
	return steps{admit: p.admit, validate: p.validate}, nil
}

// of returns the class that a Pod names; null: it names none.
func (p *runtimeClass) of(ctx context.Context, a *engine.Attributes) (object.Value, error) {
	name := a.Object.At("spec", "runtimeClassName")
	if name.IsNull() {
		return object.Nil, nil
	}
	class, err := p.objects.get(ctx, kindOf{"node.k8s.io", "v1", "runtimeclasses"}, "", name.Str())
	if err == nil && class.IsNull() {
		err = forbidden(a, fmt.Sprintf("pod rejected: RuntimeClass %q not found", name.Str()))
	}
	return class, err
}

func (p *runtimeClass) admit(ctx context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationCreate || !about(a, "", "pods", "") {
		return nil
	}
	class, err := p.of(ctx, a)
	if err != nil || class.IsNull() {
		return err
	}
	if overhead := class.At("overhead"); !overhead.IsNull() {
		fixed, given := overhead.At("podFixed"), a.Object.At("spec", "overhead")
		if given.Len() > 0 && !sameQuantities(fixed, given) {
			return forbidden(a, otherOverhead)
		}
		if fixed.IsNull() {
			a.Object = a.Object.WithoutAt("spec", "overhead")
		} else {
			a.Object = a.Object.WithAt(fixed, "spec", "overhead")
		}
	}
	return p.schedule(a, class.At("scheduling"))
}

const otherOverhead = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"

// schedule adds the node selector and the tolerations of a class.
func (p *runtimeClass) schedule(a *engine.Attributes, scheduling object.Value) error {
	if scheduling.IsNull() {
		return nil
	}
	selector := a.Object.At("spec", "nodeSelector")
	for _, m := range scheduling.At("nodeSelector").Members() {
		if given, ok := selector.Get(m.Key); ok && given.Str() != m.Value.Str() {
			return forbidden(a, fmt.Sprintf(
				"conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", m.Key, m.Value.Str(),
				m.Key, given.Str()))
		}
		a.Object = a.Object.WithAt(m.Value, "spec", "nodeSelector", m.Key)
	}
	merged := mergeTolerations(a.Object.At("spec", "tolerations").Items(), scheduling.At("tolerations").Items())
	if len(merged) > 0 {
		a.Object = a.Object.WithAt(object.ListOf(merged...), "spec", "tolerations")
	}
	return nil
}

func (p *runtimeClass) validate(ctx context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationCreate || !about(a, "", "pods", "") {
		return nil
	}
	class, err := p.of(ctx, a)
	if err != nil {
		return err
	}
	given := a.Object.At("spec", "overhead")
	if overhead := class.At("overhead"); !overhead.IsNull() {
		if !sameQuantities(overhead.At("podFixed"), given) {
			return forbidden(a, otherOverhead)
		}
	} else if !given.IsNull() {
		return forbidden(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return nil
}
