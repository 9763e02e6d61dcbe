package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/admission/quota"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// podTolerationRestriction is the plugin PodTolerationRestriction: the Pods of a namespace get its tolerations, and may
// have no others than it allows.
type podTolerationRestriction struct {
	objects  *objects
	defaults []object.Value
	allowed  []object.Value
}

const (
	defaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

func newPodTolerationRestriction(c *Config) (steps, error) {
	var config struct {
		APIVersion string              `json:"apiVersion"`
		Kind       string              `json:"kind"`
		Default    []corev1.Toleration `json:"default"`
		Whitelist  []corev1.Toleration `json:"whitelist"`
	}
	if text := c.Configurations["PodTolerationRestriction"]; len(text) > 0 {
		err := parseConfiguration(text, "Configuration",
			[]string{"podtolerationrestriction.admission.k8s.io/v1alpha1"}, &config)
		if err != nil {
			return steps{}, err
		}
	}
	p := &podTolerationRestriction{objects: c.objects}
	var err error
	if p.defaults, err = tolerationValues(config.Default); err == nil {
		p.allowed, err = tolerationValues(config.Whitelist)
	}
	return steps{admit: p.admit, validate: p.validate}, err
}

// tolerationValues brings tolerations into the form of objects.
func tolerationValues(list []corev1.Toleration) ([]object.Value, error) {
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value.Items(), err
}

func (p *podTolerationRestriction) admit(ctx context.Context, a *engine.Attributes) error {
	if !isPod(a) {
		return nil
	}
	var more []object.Value
	if a.Operation == engine.OperationCreate {
		var said bool
		var err error
		if more, said, err = p.annotated(ctx, a, defaultTolerations); err != nil {
			return err
		}
		if !said {
			more = p.defaults
		}
	}
	if hasResources(a.Object) {
		more = append(more[:len(more):len(more)], object.Fields("key", object.StringOf(corev1.TaintNodeMemoryPressure),
			"operator", object.StringOf(string(corev1.TolerationOpExists)),
			"effect", object.StringOf(string(corev1.TaintEffectNoSchedule))))
	}
	if len(more) > 0 {
		merged := mergeTolerations(a.Object.At("spec", "tolerations").Items(), more)
		a.Object = a.Object.WithAt(object.ListOf(merged...), "spec", "tolerations")
	}
	return p.validate(ctx, a)
}

// hasResources says whether a Pod requests or limits processor time or memory: it is of no class BestEffort.
func hasResources(pod object.Value) bool {
	if class := pod.At("status", "qosClass").Str(); class != "" {
		return class != string(corev1.PodQOSBestEffort)
	}
	has := func(resources object.Value) bool {
		for _, part := range []string{"requests", "limits"} {
			for _, name := range []string{"cpu", "memory"} {
				if q := quota.Quantity(resources.At(part, name)); q.Sign() > 0 {
					return true
				}
			}
		}
		return false
	}
	spec := pod.At("spec")
	if has(spec.At("resources")) {
		return true
	}
	for _, list := range []string{"containers", "initContainers"} {
		if slices.ContainsFunc(spec.At(list).Items(), func(c object.Value) bool { return has(c.At("resources")) }) {
			return true
		}
	}
	return false
}

func (p *podTolerationRestriction) validate(ctx context.Context, a *engine.Attributes) error {
	if !isPod(a) || a.Object.At("spec", "tolerations").Len() == 0 {
		return nil
	}
	allowed, said, err := p.annotated(ctx, a, allowedTolerations)
	if err != nil {
		return err
	}
	scope := "namespace"
	if !said {
		allowed, scope = p.allowed, "cluster"
	}
	if len(allowed) == 0 {
		return nil
	}
	for _, v := range a.Object.At("spec", "tolerations").Items() {
		t := readToleration(v)
		if !slices.ContainsFunc(allowed, func(w object.Value) bool { return readToleration(w).covers(t) }) {
			return unknown(fmt.Sprintf("pod tolerations (possibly merged with namespace default tolerations) conflict with "+
				"its %s whitelist", scope))
		}
	}
	return nil
}

// annotated returns the tolerations in an annotation of the namespace of a Pod, and whether it has the annotation.
func (p *podTolerationRestriction) annotated(ctx context.Context, a *engine.Attributes, key string) (
	list []object.Value, said bool, err error) {
	ns, err := p.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", a.Request.Namespace)
	switch {
	case err != nil:
		return nil, false, apierr.NewInternal(err)
	case ns.IsNull():
		return nil, false, apierr.NewNotFound(apierr.Type{Name: "namespaces"}, a.Request.Namespace)
	}
	v, ok := ns.At("metadata", "annotations").Get(key)
	if !ok || v.Str() == "" {
		return nil, ok, nil
	}
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(v.Str()), &tolerations); err != nil {
		return nil, true, unknown(err.Error())
	}
	list, err = tolerationValues(tolerations)
	return list, true, err
}
