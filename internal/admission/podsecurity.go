package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// podSecurity is the plugin PodSecurity: the labels of a Namespace say which of the Pod Security Standards its Pods
// have to meet (enforce), and which are only warned of or noted in the audit log. The standards are those of
// k8s.io/pod-security-admission. A workload, such as a Deployment, is never refused for its template.
//
// A Pod is brought into the library's types only if its namespace has a level other than privileged.
type podSecurity struct {
	objects   *objects
	defaults  api.Policy
	exempt    podSecurityExemptions
	evaluator policy.Evaluator
	metrics   PodSecurityMetrics
}

// podTemplates are the types with Pods, by group and resource: where the template is. The template of a Pod is itself.
var podTemplates = map[[2]string][]string{
	{"", "pods"}:                   {},
	{"", "replicationcontrollers"}: {"spec", "template"},
	{"", "podtemplates"}:           {"template"},
	{"apps", "replicasets"}:        {"spec", "template"},
	{"apps", "deployments"}:        {"spec", "template"},
	{"apps", "statefulsets"}:       {"spec", "template"},
	{"apps", "daemonsets"}:         {"spec", "template"},
	{"batch", "jobs"}:              {"spec", "template"},
	{"batch", "cronjobs"}:          {"spec", "jobTemplate", "spec", "template"},
}

// unsecuredSubresources are those of Pods that change nothing that the standards are about.
var unsecuredSubresources = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

// podSecurityEvaluator has the checks of all levels and versions. They are the same for all servers of a process.
var podSecurityEvaluator = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

func newPodSecurity(c *Config) (steps, error) {
	settings, err := readPodSecurity(c.Configurations["PodSecurity"])
	if err != nil {
		return steps{}, err
	}
	defaults, err := settings.policy()
	if err != nil {
		return steps{}, err
	}
	if err := settings.validate(); err != nil {
		return steps{}, err
	}
	evaluator, err := podSecurityEvaluator()
	if err != nil {
		return steps{}, err
	}
	p := &podSecurity{objects: c.objects, defaults: defaults, exempt: settings.Exemptions, evaluator: evaluator,
		metrics: c.Metrics.PodSecurity}
	return steps{validate: p.validate}, nil
}

func (p *podSecurity) validate(ctx context.Context, a *engine.Attributes) error {
	if !writes(a) {
		return nil
	}
	r := a.Request.Resource
	if about(a, "", "namespaces", "") {
		return p.validateNamespace(ctx, a)
	}
	path, ok := podTemplates[[2]string{r.Group, r.Name}]
	switch sub := a.Request.Subresource; {
	case !ok:
		return nil
	case sub != nil && (len(path) > 0 || slices.Contains(unsecuredSubresources, sub.Name)):
		return nil
	case slices.Contains(p.exempt.Namespaces, a.Request.Namespace):
		p.exempted(a, "namespace")
		return nil
	case a.Request.User.Name != "" && slices.Contains(p.exempt.Usernames, a.Request.User.Name):
		p.exempted(a, "user")
		return nil
	}
	ns, err := p.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", a.Request.Namespace)
	if err == nil && ns.IsNull() {
		err = apierr.NewNotFound(apierr.Type{Name: "namespaces"}, a.Request.Namespace)
	}
	if len(path) == 0 {
		return p.validatePod(a, ns, err)
	}
	p.validateWorkload(a, a.Object.At(path...), ns, err)
	return nil
}

// exempted notes why a request is exempt.
func (p *podSecurity) exempted(a *engine.Attributes, reason string) {
	annotateSecurity(a, api.ExemptionReasonAnnotationKey, reason)
	p.metrics.Exempted(securedRequest(a))
}

// annotateSecurity adds an annotation to the audit event.
func annotateSecurity(a *engine.Attributes, key, value string) {
	a.Annotate(api.AuditAnnotationPrefix+key, value)
}

// validatePod refuses a Pod that does not meet what its namespace enforces. nsErr is why the namespace ns is not known.
func (p *podSecurity) validatePod(a *engine.Attributes, ns object.Value, nsErr error) error {
	if nsErr != nil {
		p.metrics.Failed(securedRequest(a), true)
		failed := apierr.NewInternal(fmt.Errorf("failed to lookup namespace %q", a.Request.Namespace))
		annotateSecurity(a, "error", fmt.Sprintf("%s: %v", failed.Message, nsErr))
		return failed
	}
	levels, wrong := p.levels(ns)
	if len(wrong) == 0 && levels.FullyPrivileged() {
		annotateSecurity(a, api.EnforcedPolicyAnnotationKey, privileged)
		p.evaluated(securedRequest(a), "enforce", levels.Enforce, true)
		return nil
	}
	if a.Operation == engine.OperationUpdate && !changesImages(a.Object, a.Old) {
		return nil
	}
	return p.evaluate(a, a.Object, levels, wrong, true)
}

// privileged is the level that allows everything, as the audit log shows it.
var privileged = api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}.String()

// validateWorkload warns of a template that does not meet what the namespace warns of.
func (p *podSecurity) validateWorkload(a *engine.Attributes, template, ns object.Value, nsErr error) {
	if nsErr != nil {
		p.metrics.Failed(securedRequest(a), true)
		annotateSecurity(a, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Request.Namespace, nsErr))
		return
	}
	levels, wrong := p.levels(ns)
	if len(wrong) == 0 && levels.Warn.Level == api.LevelPrivileged && levels.Audit.Level == api.LevelPrivileged ||
		template.IsNull() {
		return
	}
	_ = p.evaluate(a, template, levels, wrong, false) // which refuses nothing
}

// levels are what the labels of a namespace demand, and what is wrong with the labels.
func (p *podSecurity) levels(ns object.Value) (api.Policy, field.ErrorList) {
	labels := ns.At("metadata", "labels")
	demands := func(m object.Member) bool { return strings.HasPrefix(m.Key, securityLabels) }
	if !slices.ContainsFunc(labels.Members(), demands) {
		return p.defaults, nil // as for nearly all namespaces, at each write of a Pod
	}
	return api.PolicyToEvaluate(labelsOf(ns), p.defaults)
}

// securityLabels begins the labels by which a namespace demands a level.
const securityLabels = "pod-security.kubernetes.io/"

func labelsOf(obj object.Value) map[string]string { return stringsOf(obj.At("metadata", "labels")) }

// changesImages says whether an update of a Pod adds or removes containers or changes an image; nothing else that the
// standards are about can change.
func changesImages(pod, old object.Value) bool {
	for _, list := range []string{"containers", "initContainers"} {
		now, before := pod.At("spec", list).Items(), old.At("spec", list).Items()
		if len(now) != len(before) {
			return true
		}
		for i := range now {
			if now[i].At("image").Str() != before[i].At("image").Str() {
				return true
			}
		}
	}
	before := old.At("spec", "ephemeralContainers")
	for _, c := range pod.At("spec", "ephemeralContainers").Items() {
		b := named(before, c.At("name").Str())
		if b.IsNull() || b.At("image").Str() != c.At("image").Str() {
			return true
		}
	}
	return false
}

// evaluate compares a Pod or a template with the levels. Of the same level, the result is computed once.
func (p *podSecurity) evaluate(a *engine.Attributes, template object.Value, levels api.Policy, wrong field.ErrorList,
	enforce bool) error {
	of := securedRequest(a)
	pod, err := readTemplate(template)
	if err != nil {
		p.metrics.Failed(of, true)
		return apierr.NewBadRequest("failed to decode object")
	}
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" &&
		slices.Contains(p.exempt.RuntimeClasses, *class) {
		p.exempted(a, "runtimeClass")
		return nil
	}
	if err := wrong.ToAggregate(); err != nil {
		annotateSecurity(a, "error", fmt.Sprintf("Failed to parse policy: %v", err))
		p.metrics.Failed(of, false)
	}
	known := map[api.LevelVersion]policy.AggregateCheckResult{}
	result := func(level api.LevelVersion) policy.AggregateCheckResult {
		r, ok := known[level]
		if !ok {
			r = policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
			known[level] = r
		}
		return r
	}
	var refusal error
	if enforce {
		annotateSecurity(a, api.EnforcedPolicyAnnotationKey, levels.Enforce.String())
		r := result(levels.Enforce)
		p.evaluated(of, "enforce", levels.Enforce, r.Allowed)
		if !r.Allowed {
			refusal = apierr.NewForbidden(a.Request.Resource.Type(), a.Name,
				fmt.Sprintf("violates PodSecurity %q: %s", levels.Enforce.String(), r.ForbiddenDetail()))
		}
	}
	if r := result(levels.Audit); !r.Allowed {
		p.evaluated(of, "audit", levels.Audit, false)
		annotateSecurity(a, api.AuditViolationsAnnotationKey,
			fmt.Sprintf("would violate PodSecurity %q: %s", levels.Audit.String(), r.ForbiddenDetail()))
	}
	if refusal == nil {
		if r := result(levels.Warn); !r.Allowed {
			p.evaluated(of, "warn", levels.Warn, false)
			a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), r.ForbiddenDetail()))
		}
	}
	return refusal
}

// readTemplate brings the metadata and spec of a Pod or a template into the types of the library.
func readTemplate(v object.Value) (*corev1.PodTemplateSpec, error) {
	var of corev1.PodTemplateSpec
	err := json.Unmarshal(object.AppendJSON(nil, object.Fields("metadata", v.At("metadata"), "spec", v.At("spec"))), &of)
	return &of, err
}

// validateNamespace refuses labels that mean nothing, and warns of Pods that a new level would not have let in.
func (p *podSecurity) validateNamespace(ctx context.Context, a *engine.Attributes) error {
	name := a.Object.At("metadata", "name").Str()
	next, wrong := p.levels(a.Object)
	if a.Operation == engine.OperationCreate {
		if len(wrong) > 0 {
			return apierr.NewInvalid(a.Request.Resource.KindType(), a.Name, wrong)
		}
		p.warnExempt(a, name, next)
		return nil
	}
	old, oldWrong := p.levels(a.Old)
	if len(wrong) > 0 && (len(oldWrong) == 0 || !reflect.DeepEqual(wrong, oldWrong)) {
		return apierr.NewInvalid(a.Request.Resource.KindType(), a.Name, wrong)
	}
	switch {
	case next.Enforce == old.Enforce, next.Enforce.Level == api.LevelPrivileged,
		next.Enforce.Version == old.Enforce.Version && api.CompareLevels(next.Enforce.Level, old.Enforce.Level) < 1:
		return nil
	case slices.Contains(p.exempt.Namespaces, name):
		p.warnExempt(a, name, next)
		return nil
	}
	a.Warn(p.violations(ctx, name, next.Enforce)...)
	return nil
}

// warnExempt warns that the labels of an exempt namespace mean nothing.
func (p *podSecurity) warnExempt(a *engine.Attributes, name string, levels api.Policy) {
	if !slices.Contains(p.exempt.Namespaces, name) || levels.FullyPrivileged() || levels.Equivalent(&p.defaults) {
		return
	}
	labels := labelsOf(a.Object)
	var said []string
	for _, mode := range []struct {
		name, level, version string
		of                   api.LevelVersion
	}{
		{"enforce", api.EnforceLevelLabel, api.EnforceVersionLabel, levels.Enforce},
		{"audit", api.AuditLevelLabel, api.AuditVersionLabel, levels.Audit},
		{"warn", api.WarnLevelLabel, api.WarnVersionLabel, levels.Warn},
	} {
		_, hasLevel := labels[mode.level]
		_, hasVersion := labels[mode.version]
		if mode.of.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			said = append(said, mode.name+"="+mode.of.String())
		}
	}
	a.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", name,
		strings.Join(said, ", ")))
}
