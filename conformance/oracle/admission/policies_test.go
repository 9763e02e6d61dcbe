package admission

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	_ "unsafe" // for go:linkname

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kubernetes/pkg/generated/openapi"

	"plinth/conformance/internal/scheme"
	ours "plinth/internal/admission"
)

// The policies of the reference are compiled by its own functions, which it does not export.

//go:linkname compileValidating k8s.io/apiserver/pkg/admission/plugin/policy/validating.compilePolicy
func compileValidating(*admissionregistration.ValidatingAdmissionPolicy) validating.Validator

//go:linkname compileMutating k8s.io/apiserver/pkg/admission/plugin/policy/mutating.compilePolicy
func compileMutating(*admissionregistration.MutatingAdmissionPolicy) mutating.PolicyEvaluator

// policyReference is the reference's plugin for policies without its informers: it has its dispatcher, its matcher and
// its compiled policies, in the order of their names.
type policyReference struct {
	*admission.Handler
	dispatch func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error
}

// validatingReference validates.
type validatingReference struct{ policyReference }

func (p *validatingReference) Validate(ctx context.Context, a admission.Attributes,
	o admission.ObjectInterfaces) error {
	return p.dispatch(ctx, a, o)
}

// mutatingReference mutates, in two passes if the first one wants a second.
type mutatingReference struct{ policyReference }

func (p *mutatingReference) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := p.dispatch(ctx, a, o); err != nil {
		return err
	}
	if again := a.GetReinvocationContext(); again.ShouldReinvoke() {
		again.SetIsReinvoke()
		return p.dispatch(ctx, a, o)
	}
	return nil
}

// params is an informer of params that has all objects from the start.
type params struct {
	cache.SharedIndexInformer
	of []runtime.Object
}

func (p *params) Informer() cache.SharedIndexInformer { return p }
func (p *params) HasSynced() bool                     { return true }
func (p *params) Lister() cache.GenericLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, obj := range p.of {
		if err := indexer.Add(obj); err != nil {
			panic(err)
		}
	}
	return inOrder{cache.NewGenericLister(indexer, schema.GroupResource{})}
}

// inOrder lists by name: the order of the reference is by chance.
type inOrder struct{ cache.GenericLister }

func (l inOrder) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return inOrderOf{l.GenericLister.ByNamespace(namespace)}
}

type inOrderOf struct{ cache.GenericNamespaceLister }

func (l inOrderOf) List(selector labels.Selector) ([]runtime.Object, error) {
	all, err := l.GenericNamespaceLister.List(selector)
	sortByName(all)
	return all, err
}

func (l inOrder) List(selector labels.Selector) ([]runtime.Object, error) {
	all, err := l.GenericLister.List(selector)
	sortByName(all)
	return all, err
}

func nameOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m.GetNamespace() + "/" + m.GetName()
}

func sortByName[T runtime.Object](all []T) {
	for i := range all {
		for j := i; j > 0 && nameOf(all[j]) < nameOf(all[j-1]); j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
}

// policies makes the reference's side of a world for policies.
func (w *world) policies(stored []runtime.Object, client *fake.Clientset,
	factory informers.SharedInformerFactory) admission.Interface {
	namespaces := factory.Core().V1().Namespaces()
	for _, obj := range stored {
		if ns, ok := obj.(*corev1.Namespace); ok {
			ns = ns.DeepCopy()
			ns.TypeMeta = metav1.TypeMeta{} // the objects of informers do not say their kind
			if err := namespaces.Informer().GetIndexer().Add(ns); err != nil {
				panic(err)
			}
		}
	}
	matcher := matching.NewMatcher(namespaces.Lister(), client)
	authz := authorizer.AuthorizerFunc(w.authorizeReference)
	paramsOf := func(kind *admissionregistration.ParamKind) (informers.GenericInformer, meta.RESTScope, error) {
		if kind == nil {
			return nil, nil, nil
		}
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		scope, known := map[schema.GroupVersionKind]meta.RESTScope{
			corev1.SchemeGroupVersion.WithKind("ConfigMap"): meta.RESTScopeNamespace,
			corev1.SchemeGroupVersion.WithKind("Node"):      meta.RESTScopeRoot,
		}[gvk]
		if !known {
			return nil, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
		}
		found := &params{}
		for _, obj := range stored {
			if obj.GetObjectKind().GroupVersionKind() == gvk {
				// The objects of informers do not say their kind.
				obj = obj.DeepCopyObject()
				obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
				found.of = append(found.of, obj)
			}
		}
		return found, scope, nil
	}
	if w.plugin == "ValidatingAdmissionPolicy" {
		var hooks []validating.PolicyHook
		for _, policy := range ofType[*admissionregistration.ValidatingAdmissionPolicy](stored) {
			hook := validating.PolicyHook{Policy: policy, Evaluator: compileValidating(policy)}
			hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = paramsOf(policy.Spec.ParamKind)
			for _, b := range ofType[*admissionregistration.ValidatingAdmissionPolicyBinding](stored) {
				if b.Spec.PolicyName == policy.Name {
					hook.Bindings = append(hook.Bindings, b)
				}
			}
			if len(hook.Bindings) > 0 {
				hooks = append(hooks, hook)
			}
		}
		dispatcher := validating.NewDispatcher(authz, generic.NewPolicyMatcher(matcher))
		return &validatingReference{policyReference{admission.NewHandler(admission.Create, admission.Update,
			admission.Delete, admission.Connect), func(ctx context.Context, a admission.Attributes,
			o admission.ObjectInterfaces) error {
			return dispatcher.Dispatch(ctx, a, o, hooks)
		}}}
	}
	var hooks []mutating.PolicyHook
	for _, policy := range ofType[*admissionregistration.MutatingAdmissionPolicy](stored) {
		hook := mutating.PolicyHook{Policy: policy, Evaluator: compileMutating(policy)}
		hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = paramsOf(policy.Spec.ParamKind)
		for _, b := range ofType[*admissionregistration.MutatingAdmissionPolicyBinding](stored) {
			if b.Spec.PolicyName == policy.Name {
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		if len(hook.Bindings) > 0 {
			hooks = append(hooks, hook)
		}
	}
	dispatcher := mutating.NewDispatcher(authz, matcher, builtinTypes{})
	return &mutatingReference{policyReference{admission.NewHandler(admission.Create, admission.Update,
		admission.Connect), func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
		return dispatcher.Dispatch(ctx, a, o, hooks)
	}}}
}

// ofType are the objects of one type, by name.
func ofType[T runtime.Object](all []runtime.Object) (found []T) {
	for _, obj := range all {
		if of, ok := obj.(T); ok {
			found = append(found, of)
		}
	}
	sortByName(found)
	return found
}

// builtinTypes has the types of the built-in kinds for the merge of the reference.
type builtinTypes struct{}

func (builtinTypes) Run(context.Context) {}

func (builtinTypes) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	converter, err := convertersOfBuiltin()
	if err != nil {
		panic(err)
	}
	return converter
}

var convertersOfBuiltin = sync.OnceValues(func() (managedfields.TypeConverter, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions,
		openapinamer.NewDefinitionNamer(scheme.Scheme))
	var names []string
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "Namespace"}, {Version: "v1", Kind: "Node"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v1", Kind: "Scale"},
	} {
		name, err := scheme.Scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(models, false)
})

// policyOf is a policy of either kind, with these members of its spec.
func policyOf(kind, name string, spec ...string) string {
	return doc("admissionregistration.k8s.io/v1", kind, "", name, nil, "spec", fields(spec...))
}

func bindingOf(kind, name, policy string, spec ...string) string {
	return doc("admissionregistration.k8s.io/v1", kind+"Binding", "", name, nil, "spec",
		fields(append([]string{"policyName", policy}, spec...)...))
}

const everything = `{resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`

// expressions are those of testdata/policies.txt by the name of their section, and some that are dear.
var expressions = sync.OnceValue(func() map[string][]string {
	text, err := os.ReadFile("testdata/policies.txt")
	if err != nil {
		panic(err)
	}
	all, section := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# "); ok {
			section, _, _ = strings.Cut(name, ":")
		} else if line != "" {
			all[section] = append(all[section], line)
		}
	}
	all["conditions"] = append(all["conditions"], dear(6))
	all["intents"] = append(all["intents"], dear(6)+" ? Object{} : Object{}")
	return all
})

// dear is an expression that takes 7ⁿ steps.
func dear(n int) string {
	expression := "a0 < 10"
	for i := range n {
		expression = fmt.Sprintf("[1, 2, 3, 4, 5, 6, 7].all(a%d, %s)", i, expression)
	}
	return expression
}

// variablesPool are named expressions; each may use those before it.
var variablesPool = [][2]string{
	{"name", `object.metadata.name`}, {"count", `object.spec.containers.size()`}, {"labels", `object.metadata.labels`},
	{"list", `['a', object.metadata.name]`}, {"broken", `object.nothing`}, {"deep", `variables.name + '!'`},
	{"params", `null`}, {"dear", dear(5)}, {"int", `1`}, {"uint", `2u`}, {"double", `1.5`}, {"bytes", `b'x'`},
	{"duration", `duration('1h')`}, {"time", `timestamp('2020-01-01T00:00:00Z')`}, {"map", `{'a': 1}`},
	{"lists", `[[1], [2]]`}, {"any", `object`}, {"wrong", `1 + 'a'`}, {"optional", `object.?spec`},
	{"auth", `authorizer.requestResource.check('delete').allowed()`},
	{"huge", `has(object.data) && has(object.data.pattern) && object.data.text.matches(object.data.pattern)`},
}

// expression is a random condition, in a policy with these properties.
func (r random) condition(withParams, withVariables bool) string {
	pool := expressions()["conditions"]
	switch n := r.IntN(6); {
	case n == 0 && withParams:
		pool = expressions()["paramConditions"]
	case n <= 2 && withVariables:
		pool = expressions()["variableConditions"]
	}
	one := r.one(pool...)
	if r.IntN(6) == 0 {
		return fmt.Sprintf("(%s) %s (%s)", one, r.one("&&", "||"), r.one(pool...))
	}
	return one
}

// match is a random matchConstraints or matchResources.
func (r random) match(resourceRules bool) string {
	rule := func() string {
		return fields("apiGroups", r.one(`["*"]`, `[""]`, `[apps]`), "apiVersions", r.one(`["*"]`, `[v1]`, `[v2]`),
			"operations", r.one(`["*"]`, `[CREATE]`, `[CREATE, UPDATE]`), "resources",
			r.one(`["*"]`, `["*/*"]`, `[pods]`, `[configmaps, pods]`, `[deployments, deployments/scale]`, `["pods/*"]`),
			"resourceNames", r.one("", "", "", "[p]", "[q, r]"), "scope", r.one("", `"*"`, "Namespaced", "Cluster"))
	}
	rules := everything[len("{resourceRules: ") : len(everything)-1]
	if r.IntN(4) == 0 {
		rules = "[" + rule() + ", " + rule() + "]"
	}
	if r.IntN(6) == 0 { // one of two versions
		rules = "[" + fields("apiGroups", "[autoscaling]", "apiVersions", r.one("[v1]", "[v2]"), "operations", `["*"]`,
			"resources", `["*"]`) + "]"
	}
	if !resourceRules && r.IntN(2) == 0 {
		rules = ""
	}
	excluded := ""
	if r.IntN(5) == 0 {
		excluded = "[" + rule() + "]"
	}
	selector := func(key string) string {
		return r.one("", "", "", fmt.Sprintf("{matchLabels: {%s}}", key),
			fmt.Sprintf("{matchExpressions: [{key: %s, operator: DoesNotExist}]}", strings.Split(key, ":")[0]))
	}
	return fields("resourceRules", rules, "excludeResourceRules", excluded,
		"matchPolicy", r.one("", "Exact", "Equivalent"),
		"objectSelector", selector("app: web"), "namespaceSelector", selector("team: a"))
}

// some returns n of the texts, each made anew.
func (r random) times(n int, make func() string) string {
	all := []string{}
	for range n {
		all = append(all, make())
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// start are the members of a spec that both kinds have.
func (r random) start() (spec []string, withParams, withVariables bool) {
	spec = []string{"matchConstraints", r.match(true), "failurePolicy", r.one("Fail", "Fail", "Ignore")}
	if r.IntN(3) == 0 {
		withParams = true
		spec = append(spec, "paramKind", r.one("{apiVersion: v1, kind: ConfigMap}", "{apiVersion: v1, kind: ConfigMap}",
			"{apiVersion: v1, kind: Node}", "{apiVersion: example.com/v1, kind: None}"))
	}
	if r.IntN(2) == 0 {
		withVariables = true
		var all []string
		for _, v := range variablesPool {
			if r.IntN(4) > 0 {
				all = append(all, fields("name", v[0], "expression", quoted(v[1])))
			}
		}
		spec = append(spec, "variables", "["+strings.Join(all, ", ")+"]")
	}
	if r.IntN(3) == 0 {
		number := 0
		spec = append(spec, "matchConditions", r.times(1+r.IntN(2), func() string {
			number++
			return fields("name", fmt.Sprint("c", number), "expression", quoted(r.condition(withParams, withVariables)))
		}))
	}
	return spec, withParams, withVariables
}

// ref is a random paramRef.
func (r random) ref() string {
	return r.one("", fields("name", r.one("limits", "none", "n1"), "namespace", r.one("", "", "ns", "other"),
		"parameterNotFoundAction", r.one("Deny", "Allow")), fields("selector", r.one("{}", "{matchLabels: {kind: limits}}"),
		"namespace", r.one("", "", "ns"), "parameterNotFoundAction", r.one("Deny", "Allow")))
}

// bindings are one or two bindings of a policy.
func (r random) bindings(kind, policy string, more ...func() string) []string {
	var all []string
	for i := range 1 + r.IntN(2) {
		spec := []string{"paramRef", r.ref()}
		if r.IntN(3) == 0 {
			spec = append(spec, "matchResources", r.match(false))
		}
		if len(more) > 0 {
			spec = append(spec, "validationActions", more[0]())
		}
		all = append(all, bindingOf(kind, fmt.Sprintf("%s-b%d", policy, i), policy, spec...))
	}
	return all
}

// validatingPolicy is a random policy with its bindings.
func (r random) validatingPolicy(name string) []string {
	const kind = "ValidatingAdmissionPolicy"
	spec, withParams, withVariables := r.start()
	spec = append(spec, "validations", r.times(1+r.IntN(3), func() string {
		message := ""
		if r.IntN(2) == 0 {
			message = quoted(r.one(expressions()["messages"]...))
		}
		return fields("expression", quoted(r.condition(withParams, withVariables)), "messageExpression", message,
			"message", r.one("", "", "no good"), "reason", r.one("", "", "Forbidden", "Unauthorized",
				"RequestEntityTooLarge"))
	}))
	if r.IntN(4) == 0 {
		number := 0
		spec = append(spec, "auditAnnotations", r.times(1+r.IntN(2), func() string {
			number++
			return fields("key", fmt.Sprint("k", number), "valueExpression", quoted(r.one(expressions()["annotations"]...)))
		}))
	}
	return append(r.bindings(kind, name, func() string {
		return r.one("[Deny]", "[Deny]", "[Warn]", "[Audit]", "[Deny, Audit]", "[Warn, Audit]")
	}), policyOf(kind, name, spec...))
}

// optionsOf are the options of a request, as the reference's handlers make them.
func optionsOf(operation admission.Operation) runtime.Object {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: name + "Options"}
	}
	switch operation {
	case admission.Create:
		return &metav1.CreateOptions{TypeMeta: kind("Create")}
	case admission.Update:
		return &metav1.UpdateOptions{TypeMeta: kind("Update")}
	}
	return &metav1.DeleteOptions{TypeMeta: kind("Delete")}
}

// policyAttempts are requests that policies are evaluated on.
func policyAttempts() []attempt {
	jane := user.DefaultInfo{Name: "jane", UID: "1", Groups: []string{"devs"}, Extra: map[string][]string{"k": {"v"}}}
	labeled := []string{"labels", "{app: web, tier: front}", "uid", "u"}
	rich := pod(labeled, "containers", `[{name: c, image: "i:1", ports: [{containerPort: 80}], resources: {limits: {cpu: 500m}}}, {name: d, image: j, env: [{name: A, value: b}]}]`,
		"hostNetwork", "true", "nodeSelector", "{disk: ssd}", "tolerations", "[{key: a, operator: Exists}]")
	deployment := func(replicas string) string {
		return doc("apps/v1", "Deployment", "ns", "d", []string{"labels", "{app: web}"}, "spec", fields("replicas", replicas,
			"selector", "{matchLabels: {app: web}}", "template",
			"{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}"))
	}
	of := func(operation admission.Operation, group, resource, namespace, name, object, old string) attempt {
		return attempt{operation: operation, group: group, version: "v1", resource: resource, namespace: namespace,
			name: name, object: object, old: old, user: jane, options: optionsOf(operation)}
	}
	scale := of(admission.Update, "apps", "deployments", "ns", "d",
		doc("autoscaling/v1", "Scale", "ns", "d", nil, "spec", "{replicas: 3}", "status", "{replicas: 1}"),
		doc("autoscaling/v1", "Scale", "ns", "d", nil, "spec", "{replicas: 1}", "status", "{replicas: 1}"))
	scale.subresource = "scale"
	autoscaler := func(version, utilization string) attempt {
		metrics := []string{"targetCPUUtilizationPercentage", utilization}
		if version == "v2" {
			metrics = []string{"metrics", "[{type: Resource, resource: {name: cpu, target: {type: Utilization, " +
				"averageUtilization: " + utilization + "}}}]"}
		}
		a := of(admission.Create, "autoscaling", "horizontalpodautoscalers", "ns", "p",
			doc("autoscaling/"+version, "HorizontalPodAutoscaler", "ns", "p", labeled, "spec", fields(append(metrics,
				"maxReplicas", "3", "scaleTargetRef", "{kind: Deployment, name: d, apiVersion: apps/v1}")...)), "")
		a.version = version
		return a
	}
	dry := of(admission.Create, "", "pods", "ns", "p", pod(nil), "")
	dry.dry = true
	dry.options.(*metav1.CreateOptions).DryRun = []string{metav1.DryRunAll}
	return []attempt{
		of(admission.Create, "", "pods", "ns", "p", rich, ""),
		of(admission.Update, "", "pods", "ns", "p", rich, pod(labeled)),
		dry, of(admission.Delete, "", "pods", "ns", "p", "", rich),
		of(admission.Create, "apps", "deployments", "ns", "d", deployment("3"), ""),
		of(admission.Update, "apps", "deployments", "other", "d", deployment("1"), deployment("5")), scale,
		of(admission.Create, "", "configmaps", "ns", "p",
			doc("v1", "ConfigMap", "ns", "p", nil, "data", `{a: "1", b: ""}`), ""),
		of(admission.Create, "", "namespaces", "", "ns", namespaceDoc("ns", "", "{team: a, app: web}"), ""),
		of(admission.Create, "", "services", "ns", "s",
			doc("v1", "Service", "ns", "s", nil, "spec", "{ports: [{port: 80}]}"), ""),
		of(admission.Create, "", "configmaps", "other", "long", longConfigMap("other"), ""),
		of(admission.Create, "", "nodes", "", "n2", doc("v1", "Node", "", "n2", labeled, "spec", "{}"), ""),
		// The reference cannot convert what mutating policies make of these back to the version of the request.
		autoscaler("v1", "50"), autoscaler("v2", "50"), autoscaler("v2", "60"),
	}
}

// converted is how many of the attempts, at the end of them, are for kinds with several versions.
const converted = 3

// longConfigMap has a text and a pattern that cost more than all budgets together, and take no time, as they have no
// letter in common.
func longConfigMap(namespace string) string {
	return doc("v1", "ConfigMap", namespace, "long", nil, "data",
		fields("text", strings.Repeat("a", 30_000), "pattern", strings.Repeat("b", 30_000)))
}

// policyObjects are what policies find.
func policyObjects() []string {
	return []string{
		namespaceDoc("ns", "", "{team: a}"), namespaceDoc("other", "", "{team: b}"),
		doc("v1", "ConfigMap", "ns", "limits", []string{"labels", "{kind: limits, app: web}"}, "data", `{max: "3", p: "x"}`),
		doc("v1", "ConfigMap", "ns", "more", []string{"labels", "{kind: limits}"}, "data", `{max: "1"}`),
		doc("v1", "ConfigMap", "other", "limits", nil, "data", `{max: "9"}`),
		doc("v1", "Node", "", "n1", []string{"labels", "{kind: limits}"}, "spec", "{unschedulable: true}"),
	}
}

func policyWorld(t *testing.T, kind string, objects ...string) *world {
	return measuredPolicies(t, kind, nil, objects...)
}

// measuredPolicies is policyWorld with metrics of ours that count; nil: without any.
func measuredPolicies(t *testing.T, kind string, f *figures, objects ...string) *world {
	var metrics ours.Metrics
	if f != nil {
		metrics = countPolicies(f)
	}
	return (&world{
		plugin: kind, metrics: metrics, figures: f, objects: append(policyObjects(), objects...), reason: "because",
		ofGo:  true,
		allow: func(verb, _, _, _, _, _ string) bool { return verb != "list" && verb != "get" },
	}).build(t)
}

// Random policies, bindings and params on requests of all kinds.
//
// SPEC: AUTH-3
func TestValidatingAdmissionPolicy(t *testing.T) {
	count, reached := tally{}, reach{}
	for seed := range uint64(1000) {
		r := seeded(seed)
		objects := r.validatingPolicy("one")
		if r.IntN(3) == 0 {
			objects = append(objects, r.validatingPolicy("two")...)
		}
		w := policyWorld(t, "ValidatingAdmissionPolicy", objects...)
		attempts := policyAttempts()
		for range 3 {
			before := t.Failed()
			reached.add(w.compare(t, attempts[r.IntN(len(attempts))], &count))
			if t.Failed() && !before {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(objects, "\n"))
			}
		}
	}
	count.atLeast(t, 0, 500, 500)
	reached.atLeast(t, validatingFloors)
}

// reach counts the outcomes that have a text, by text.
type reach map[string]int

// texts are what outcomes are counted by.
var texts = []string{
	"code:401", "code:403", "code:413", "code:422", "failed expression", "Validation failed for", "validation_failure",
	"annotation: one/", "compilation failed", "must evaluate to", "no such key", "no such overload", "cost limit exceeded",
	"running out of cost budget", "failed messageExpression", "composited variable", "fails to compile",
	"no params found", "cannot use namespaced paramRef", "must not be provided for a cluster-scoped",
	"failed to configure policy", "failed to configure binding", "no such attribute", "autoscaling/v",
	"may not mutate atomic", "field not declared in schema", "duplicate entries", "JSON Patch", "type mismatch",
	"strict decoding", "out of bounds", "could not marshal",
	"asked: ", "denied the request", "does not support dry run", "failed-open", "known AdmissionReview",
	"invalid webhook response", "failed to call webhook", "round_1", "undecodable patch",
	"attempted to modify the object",
}

func (n reach) add(o outcome) {
	text := o.String()
	for _, of := range texts {
		if strings.Contains(text, of) {
			n[of]++
		}
	}
}

// atLeast demands how often a text has to occur.
func (n reach) atLeast(t *testing.T, floors map[string]int) {
	t.Helper()
	for text, floor := range floors {
		if n[text] < floor {
			t.Errorf("%q occurs %d times, want %d: %v", text, n[text], floor, n)
		}
	}
}

var (
	validatingFloors = map[string]int{
		"code:401": 15, "code:403": 20, "code:413": 15, "code:422": 300, "failed expression": 80,
		"Validation failed for": 150, "validation_failure": 200, "annotation: one/": 50, "compilation failed": 100,
		"must evaluate to": 40,
		"no such key":      150, "no such overload": 7, "cost limit exceeded": 4, "running out of cost budget": 4,
		"failed messageExpression": 1, "composited variable": 13, "fails to compile": 4, "no params found": 12,
		"cannot use namespaced paramRef": 2, "must not be provided for a cluster-scoped": 13, "no such attribute": 3,
		"failed to configure policy": 45, "failed to configure binding": 25, "autoscaling/v": 250,
	}
	mutatingFloors = map[string]int{
		"JSON Patch": 100, "compilation failed": 60, "composited variable": 2, "field not declared in schema": 150,
		"may not mutate atomic": 8, "must evaluate to": 40, "no params found": 30, "no such key": 90,
		"running out of cost budget": 1, "type mismatch": 12, "cannot use namespaced paramRef": 6,
		"failed to configure policy": 120, "failed to configure binding": 60,
	}
)

// mutatingPolicy is a random policy with its bindings.
func (r random) mutatingPolicy(name string) []string {
	const kind = "MutatingAdmissionPolicy"
	spec, _, _ := r.start()
	spec = append(spec, "reinvocationPolicy", r.one("Never", "IfNeeded"), "mutations", r.times(1+r.IntN(2), func() string {
		if r.IntN(2) == 0 {
			return fields("patchType", "JSONPatch",
				"jsonPatch", fields("expression", quoted(r.one(expressions()["patches"]...))))
		}
		return fields("patchType", "ApplyConfiguration",
			"applyConfiguration", fields("expression", quoted(r.one(expressions()["intents"]...))))
	}))
	return append(r.bindings(kind, name), policyOf(kind, name, spec...))
}

// Random policies change requests of all kinds.
//
// SPEC: AUTH-3, SSA-19
func TestMutatingAdmissionPolicy(t *testing.T) {
	count, reached := tally{}, reach{}
	for seed := range uint64(1000) {
		r := seeded(1<<32 + seed)
		objects := r.mutatingPolicy("one")
		if r.IntN(3) == 0 {
			objects = append(objects, r.mutatingPolicy("two")...)
		}
		w := policyWorld(t, "MutatingAdmissionPolicy", objects...)
		attempts := policyAttempts()
		for range 6 {
			before := t.Failed()
			reached.add(w.compare(t, attempts[r.IntN(len(attempts)-converted)], &count))
			if t.Failed() && !before {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(objects, "\n"))
			}
		}
	}
	count.atLeast(t, 220, 2000, 1000)
	reached.atLeast(t, mutatingFloors)
}

// A part of a built-in object as the value of a JSON Patch. In the reference it is an error if the policy has match
// conditions, and none without: these change how the object is represented for all expressions after them.
//
// SPEC: AUTH-3
func TestPartsOfObjectsInPatches(t *testing.T) {
	const kind = "MutatingAdmissionPolicy"
	spec := []string{"matchConstraints", everything, "reinvocationPolicy", "Never", "mutations",
		"[" + fields("patchType", "JSONPatch", "jsonPatch", fields("expression",
			quoted("[JSONPatch{op: 'add', path: '/metadata/annotations', value: object.metadata.labels}]"))) + "]"}
	w := policyWorld(t, kind, policyOf(kind, "p", spec...), bindingOf(kind, "b", "p"))
	count := tally{}
	w.compare(t, policyAttempts()[0], &count)
	count.atLeast(t, 1, 0, 0)
	spec = append(spec, "matchConditions", "[{name: c, expression: 'true'}]")
	w = policyWorld(t, kind, policyOf(kind, "p", spec...), bindingOf(kind, "b", "p"))
	w.differs(t, policyAttempts()[0], "could not marshal to JSON: "+
		"type conversion error from 'map(dyn, dyn)' to '*structpb.Value'")
}

// Expressions that cost more than they may together: validations, match conditions, variables, messages, audit
// annotations and mutations, from far below to above each budget.
//
// SPEC: AUTH-3
func TestBudgetsOfPolicies(t *testing.T) {
	const over = "running out of cost budget"
	// A search costs a tenth of the length of the text, and takes a microsecond.
	const ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
	const costly = ten + ".all(a, " + ten + ".all(b, !object.data.big.contains('b')))"
	request := policyAttempts()[7]
	request.object = doc("v1", "ConfigMap", "ns", "p", nil, "data", fields("big", strings.Repeat("a", 90_000)))
	repeat := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	validations := func(expression, message string) func(int) string {
		return func(int) string {
			return fields("expression", quoted(expression), "messageExpression", message)
		}
	}
	text := fmt.Sprintf("%s ? 'a' : 'b'", costly)
	variables := func(n int) string {
		return repeat(n, func(i int) string { return fields("name", fmt.Sprint("v", i), "expression", quoted(costly)) })
	}
	uses := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprint("variables.v", i))
		}
		return strings.Join(append(all, "true"), " && ")
	}
	for name, spec := range map[string]func(n int) []string{
		"validations": func(n int) []string {
			return []string{"validations", repeat(n, validations(costly, ""))}
		},
		"match conditions": func(n int) []string {
			return []string{"validations", repeat(1, validations("false", "")), "matchConditions",
				repeat(n, func(i int) string {
					return fields("name", fmt.Sprint("c", i), "expression", quoted(costly))
				})}
		},
		"conditions behind a false one": func(n int) []string {
			return []string{"validations", repeat(1, validations("false", "")), "matchConditions",
				repeat(n, func(i int) string {
					expression := costly
					if i == 0 {
						expression = "false"
					}
					return fields("name", fmt.Sprint("c", i), "expression", quoted(expression))
				})}
		},
		"messages": func(n int) []string {
			return []string{"validations", repeat(n, validations("true", quoted(text)))}
		},
		"variables": func(n int) []string {
			return []string{"variables", variables(n), "validations", repeat(1, validations(uses(n), ""))}
		},
		"annotations": func(n int) []string {
			return []string{"validations", repeat(1, validations("false", "")), "auditAnnotations",
				repeat(min(n, 20), func(i int) string {
					return fields("key", fmt.Sprint("k", i), "valueExpression", quoted(text))
				})}
		},
	} {
		within, above := 0, 0
		for _, n := range []int{1, 2, 3, 4, 8, 12, 13, 14, 15, 20} {
			for _, policy := range []string{"Fail", "Ignore"} {
				const kind = "ValidatingAdmissionPolicy"
				members := append(spec(n), "matchConstraints", everything, "failurePolicy", policy)
				w := policyWorld(t, kind, policyOf(kind, "p", members...),
					bindingOf(kind, "b", "p", "validationActions", "[Deny, Audit]"))
				result := w.compare(t, request, &tally{})
				if result.refusal != nil && strings.Contains(result.refusal.message, over) {
					above++
				} else {
					within++
				}
			}
		}
		if within < 3 || above < 1 {
			t.Errorf("%s: %d are within the budget, %d above", name, within, above)
		}
	}
}

// One step may cost more than all budgets together: a long text and a long pattern, which takes no time as they have no
// letter in common. It counts wherever it stands, also where its result is of no use.
//
// SPEC: AUTH-3
func TestDearSteps(t *testing.T) {
	const kind, dear = "ValidatingAdmissionPolicy", "object.data.text.matches(object.data.pattern)"
	request := policyAttempts()[7]
	request.object = longConfigMap("ns")
	validation := func(expression, message string) string {
		return "[" + fields("expression", quoted(expression), "messageExpression", quoted(message)) + "]"
	}
	variable := "[" + fields("name", "v", "expression", quoted(dear)) + "]"
	conditions := func(all ...string) string {
		items := make([]string, len(all))
		for i, expression := range all {
			items[i] = fields("name", fmt.Sprint("c", i), "expression", quoted(expression))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	refused := tally{}
	for name, spec := range map[string][]string{
		"a validation":              {"validations", validation(dear, "'a'")},
		"a message that is shown":   {"validations", validation("false", dear+" ? 'a' : 'b'")},
		"a message that is not":     {"validations", validation("true", dear+" ? 'a' : 'b'")},
		"a variable of the message": {"variables", variable, "validations", validation("true", "string(variables.v)")},
		"a variable of nothing":     {"variables", variable, "validations", validation("true", "'a'")},
		"a match condition":         {"validations", validation("true", "'a'"), "matchConditions", conditions(dear)},
		"one behind a false one": {"validations", validation("true", "'a'"),
			"matchConditions", conditions("false", dear)},
		"an annotation": {"validations", validation("true", "'a'"), "auditAnnotations",
			"[" + fields("key", "k", "valueExpression", quoted(dear+" ? 'a' : null")) + "]"},
	} {
		for _, policy := range []string{"Fail", "Ignore"} {
			members := append(spec, "matchConstraints", everything, "failurePolicy", policy)
			w := policyWorld(t, kind, policyOf(kind, "p", members...),
				bindingOf(kind, "b", "p", "validationActions", "[Deny, Audit]"))
			before := t.Failed()
			w.compare(t, request, &refused)
			if t.Failed() && !before {
				t.Errorf("%s, failurePolicy %s", name, policy)
			}
		}
	}
	refused.atLeast(t, 0, 8, 6)
}
