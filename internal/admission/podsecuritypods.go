package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// How many Pods are looked at when the level of a namespace changes, and for how long.
const (
	securityPods = 3000
	securityTime = time.Second
)

// violations are the warnings about the Pods of a namespace that a level would not let in. Pods of one controller are
// alike, so one of each is looked at before the others. There is an end to it: a namespace may have 100,000 Pods, and
// the request waits.
func (p *podSecurity) violations(ctx context.Context, namespace string, level api.LevelVersion) []string {
	limit := securityTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pods := p.sample(namespace)
	found := map[string]*violation{}
	looked := 0
	for _, v := range pods[:min(len(pods), securityPods)] {
		looked++
		if text, name := p.violates(v, level); text != "" {
			of := found[text]
			if of == nil {
				of = &violation{text: text, name: name}
				found[text] = of
			}
			of.name = min(of.name, name)
			of.pods++
		}
		if ctx.Err() != nil {
			break
		}
	}
	var warnings []string
	if looked < len(pods) {
		warnings = append(warnings, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d "+
			"existing pods", looked, len(pods)))
	}
	if len(found) > 0 {
		warnings = append(warnings, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q",
			namespace, level.String()))
	}
	var each []string
	for _, v := range found {
		each = append(each, v.String())
	}
	slices.Sort(each)
	return append(warnings, each...)
}

// violation is one sort of violation, with the number of Pods that have it and the first of their names.
type violation struct {
	text, name string
	pods       int
}

func (v *violation) String() string {
	switch v.pods {
	case 1:
		return fmt.Sprintf("%s: %s", v.name, v.text)
	case 2:
		return fmt.Sprintf("%s (and 1 other pod): %s", v.name, v.text)
	}
	return fmt.Sprintf("%s (and %d other pods): %s", v.name, v.pods-1, v.text)
}

// sample returns the Pods of a namespace, without those of exempt runtime classes: first those without a controller and
// one of each controller, then the others. One that cannot be read is not among them.
func (p *podSecurity) sample(namespace string) []*store.Version {
	r := p.objects.resource(kindOf{"", "v1", "pods"})
	if r == nil {
		return nil
	}
	var first, more []*store.Version
	seen := map[string]bool{}
	snapshot := p.objects.store.Collection(r.Stored.Path).Snapshot()
	snapshot.Ascend(r.Stored.Path, namespace+"/", "", func(v *store.Version) bool {
		head, err := engine.HeadOf(v)
		if err != nil || p.exemptClass(v) {
			return true
		}
		controller := controllerOf(head)
		if controller != "" && seen[controller] {
			more = append(more, v)
			return true
		}
		seen[controller] = true
		first = append(first, v)
		return true
	})
	return append(first, more...)
}

// exemptClass says whether a Pod has an exempt runtime class.
func (p *podSecurity) exemptClass(v *store.Version) bool {
	if len(p.exempt.RuntimeClasses) == 0 {
		return false
	}
	obj, err := engine.ObjectOf(v)
	return err == nil && slices.Contains(p.exempt.RuntimeClasses, obj.At("spec", "runtimeClassName").Str())
}

// controllerOf is the UID of the controller of an object; "": it has none.
func controllerOf(obj object.Value) string {
	for _, o := range obj.At("metadata", "ownerReferences").Items() {
		if o.At("controller").Bool() {
			return o.At("uid").Str()
		}
	}
	return ""
}

// violates says why a stored Pod does not meet a level, and its name; "": it does.
func (p *podSecurity) violates(v *store.Version, level api.LevelVersion) (why, name string) {
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return "", ""
	}
	pod, err := readTemplate(obj)
	if err != nil {
		return "", ""
	}
	r := policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	if r.Allowed {
		return "", ""
	}
	return r.ForbiddenReason(), pod.Name
}
