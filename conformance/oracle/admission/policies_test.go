package admission

import (
	"context"
	"fmt"
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
		{Version: "v1", Kind: "Namespace"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
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

// policyOf is a policy of either kind, with these members of its spec, and without a paramKind unless it is one of them.
func policyOf(kind, name string, spec ...string) string {
	return doc("admissionregistration.k8s.io/v1", kind, "", name, nil, "spec", fields(spec...))
}

func bindingOf(kind, name, policy string, spec ...string) string {
	return doc("admissionregistration.k8s.io/v1", kind+"Binding", "", name, nil, "spec",
		fields(append([]string{"policyName", policy}, spec...)...))
}

const everything = `{resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`

// conditions are expressions of the type bool about any object; some fail, or are wrong.
var conditions = []string{
	`true`, `false`, `has(object.metadata.labels)`, `object.metadata.name.startsWith('p')`, `object == null`,
	`oldObject == null`, `request.operation == 'CREATE'`, `request.name == 'p'`, `request.namespace != 'ns'`,
	`'app' in object.metadata.labels`, `object.metadata.labels['app'] == 'web'`, `has(object.spec) && has(object.spec.replicas)`,
	`object.spec.replicas > 2`, `object.spec.containers.all(c, c.image.contains(':'))`,
	`object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits))`,
	`!has(object.spec) || !has(object.spec.hostNetwork) || !object.spec.hostNetwork`,
	`object.spec.containers[0].ports.map(p, p.containerPort).exists(p, p < 1024)`,
	`quantity(object.spec.containers[0].resources.limits.cpu).isLessThan(quantity('2'))`,
	`namespaceObject.metadata.name == 'ns'`, `namespaceObject.metadata.labels['team'] == 'a'`, `namespaceObject == null`,
	`namespaceObject.status.phase == 'Active'`, `request.userInfo.username == 'jane'`, `'devs' in request.userInfo.groups`,
	`authorizer.group('').resource('pods').namespace('ns').check('create').allowed()`,
	`authorizer.requestResource.check('delete').allowed()`, `authorizer.requestResource.check('list').reason() == 'because'`,
	`request.kind.kind == 'Pod'`, `request.resource.resource == 'pods' && request.requestKind.version == 'v1'`,
	`request.options.fieldManager == 'x'`, `has(request.options)`, `request.dryRun`, `!has(request.subResource)`,
	`object.metadata.annotations.all(k, k.size() < 10)`, `object.data.all(k, object.data[k] != '')`,
	`object.data.exists_one(k, k == 'a')`, `type(object.metadata.name) == string`, `object.spec.selector.matchLabels == {'app': 'web'}`,
	`object.spec.template.spec.containers.size() == 1`, `object.metadata.creationTimestamp == null`,
	`string(object.metadata.uid) != ''`, `object.metadata.name.matches('^[a-z]+$')`, `has(object.status)`,
	`object.spec == oldObject.spec`, `object == oldObject`, `dyn(object.metadata.name) == 1`, `object.spec.ports[0].port == 80`,
	`object.nothing == 1`, `object.spec.replicas / 0 == 1`, `url('x').getHost() == ''`,
	`object.?spec.?replicas.orValue(0) > 1`, `size(object.metadata.labels) > 0`,
	`[1, 2, 3].sum() == 6 && object.metadata.name.upperAscii() == 'P'`, `ip('10.0.0.1').family() == 4`,
	dear(6),
}

// paramConditions need params.
var paramConditions = []string{
	`params == null`, `params.data['max'] == '3'`, `int(params.data.max) > 2`, `object.metadata.name in params.data`,
	`params.metadata.name == 'limits'`, `has(params.data)`, `params.kind == 'ConfigMap'`, `has(params.apiVersion)`,
	`params.spec.unschedulable`, `object.metadata.labels.all(k, k in params.metadata.labels)`,
}

// variableConditions need variables.
var variableConditions = []string{
	`variables.name == 'p'`, `variables.count > 1`, `variables.labels.exists(k, k == 'app')`, `variables.list.size() > 0`,
	`variables.broken`, `variables.deep == 'p!'`, `variables.params == null`, `has(variables.name)`, `variables.never == 1`,
	`variables.dear || true`,
}

var messages = []string{
	`'name is ' + object.metadata.name`, `''`, `'  trimmed  '`, `'two\nlines'`, `object.nothing`, `string(object.spec.replicas)`,
	`'a'.replace('a', 'b')`, `'x'.matches('(') ? 'a' : 'b'`, `request.userInfo.username + '!'`,
	`['a', 'b'].join(', ')`,
	`'0123456789'.split('').map(a, '0123456789').join('').split('').map(a, '0123456789').join('').split('').map(a, '0123456789').join('')`,
}

var annotationsPool = []string{
	`'name: ' + object.metadata.name`, `null`, `''`, `object.nothing == 1 ? 'a' : 'b'`, `object.metadata.name == 'p' ? 'yes' : null`,
	`string(size(object.metadata.labels))`, `namespaceObject.metadata.name`,
	`authorizer.requestResource.check('get').allowed() ? 'may' : 'may not'`,
}

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
	{"params", `null`}, {"dear", dear(5)},
}

// expression is a random condition, in a policy with these properties.
func (r random) condition(withParams, withVariables bool) string {
	pool := conditions
	switch n := r.IntN(6); {
	case n == 0 && withParams:
		pool = paramConditions
	case n <= 2 && withVariables:
		pool = variableConditions
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
	if r.IntN(2) == 0 {
		rules = "[" + rule() + ", " + rule() + "]"
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
	return fields("resourceRules", rules, "excludeResourceRules", excluded, "matchPolicy", r.one("", "Exact", "Equivalent"),
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
			message = quoted(r.one(messages...))
		}
		return fields("expression", quoted(r.condition(withParams, withVariables)), "messageExpression", message,
			"message", r.one("", "", "no good"), "reason", r.one("", "", "Forbidden", "Unauthorized",
				"RequestEntityTooLarge"))
	}))
	if r.IntN(4) == 0 {
		number := 0
		spec = append(spec, "auditAnnotations", r.times(1+r.IntN(2), func() string {
			number++
			return fields("key", fmt.Sprint("k", number), "valueExpression", quoted(r.one(annotationsPool...)))
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
		return attempt{operation: operation, group: group, version: "v1", resource: resource, namespace: namespace, name: name,
			object: object, old: old, user: jane, options: optionsOf(operation)}
	}
	scale := of(admission.Update, "apps", "deployments", "ns", "d",
		doc("autoscaling/v1", "Scale", "ns", "d", nil, "spec", "{replicas: 3}", "status", "{replicas: 1}"),
		doc("autoscaling/v1", "Scale", "ns", "d", nil, "spec", "{replicas: 1}", "status", "{replicas: 1}"))
	scale.subresource = "scale"
	dry := of(admission.Create, "", "pods", "ns", "p", pod(nil), "")
	dry.dry = true
	dry.options.(*metav1.CreateOptions).DryRun = []string{metav1.DryRunAll}
	return []attempt{
		of(admission.Create, "", "pods", "ns", "p", rich, ""), of(admission.Update, "", "pods", "ns", "p", rich, pod(labeled)),
		dry, of(admission.Delete, "", "pods", "ns", "p", "", rich),
		of(admission.Create, "apps", "deployments", "ns", "d", deployment("3"), ""),
		of(admission.Update, "apps", "deployments", "other", "d", deployment("1"), deployment("5")), scale,
		of(admission.Create, "", "configmaps", "ns", "p", doc("v1", "ConfigMap", "ns", "p", nil, "data", `{a: "1", b: ""}`), ""),
		of(admission.Create, "", "namespaces", "", "ns", namespaceDoc("ns", "", "{team: a, app: web}"), ""),
		of(admission.Create, "", "services", "ns", "s", doc("v1", "Service", "ns", "s", nil, "spec", "{ports: [{port: 80}]}"), ""),
	}
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
	return (&world{
		plugin: kind, objects: append(policyObjects(), objects...), reason: "because",
		allow: func(verb, _, _, _, _, _ string) bool { return verb != "list" && verb != "get" },
	}).build(t)
}

// Random policies, bindings and params on requests of all kinds.
//
// SPEC: AUTH-3
func TestValidatingAdmissionPolicy(t *testing.T) {
	count := tally{}
	noted, warned := 0, 0
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
			result := w.compare(t, attempts[r.IntN(len(attempts))], &count)
			noted += len(result.annotations)
			warned += len(result.warnings)
			if t.Failed() && !before {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(objects, "\n"))
			}
		}
	}
	count.atLeast(t, 0, 500, 500)
	if noted < 200 || warned < 100 {
		t.Errorf("%d annotations and %d warnings", noted, warned)
	}
}
