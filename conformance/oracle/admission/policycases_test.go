package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// policyCase is a policy with its bindings, without the part of the spec that all cases have, and what is asked.
type policyCase struct {
	name string
	// policy and binding are members of the two specs; bindings are further bindings, by name.
	policy, binding []string
	bindings        map[string][]string
	unbound         bool // there is no binding
	objects         []string
	of              attempt
}

// policyRequests are what is asked.
type policyRequests struct {
	pod, config, nowhere, namespace, scaled, connect attempt
}

func newPolicyRequests() policyRequests {
	all := policyAttempts()
	r := policyRequests{pod: all[0], config: all[7], scaled: all[5]}
	r.nowhere = r.config
	r.nowhere.namespace = "nowhere"
	r.nowhere.object = doc("v1", "ConfigMap", "nowhere", "p", nil)
	r.namespace = all[8]
	r.namespace.operation, r.namespace.options = admission.Update, optionsOf(admission.Update)
	r.namespace.namespace, r.namespace.old = "ns", r.namespace.object
	r.connect = r.pod
	r.connect.operation, r.connect.object, r.connect.options = admission.Connect, "", nil
	return r
}

// described is a namespace with members of its metadata that only some expressions see.
func described() string {
	return doc("v1", "Namespace", "", "described", []string{
		"ownerReferences", "[{apiVersion: v1, kind: K, name: owner, uid: u}]",
		"managedFields", `[{manager: m, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:a": {}}}]`,
	})
}

// inDescribed is a ConfigMap in that namespace.
func (r policyRequests) inDescribed(data string) attempt {
	a := r.config
	a.namespace, a.object = "described", doc("v1", "ConfigMap", "described", "p", nil, "data", data)
	return a
}

// refs are references to params that cannot be resolved, or that find nothing.
func refs() map[string]string {
	return map[string]string{
		"both":        "{name: limits, selector: {}, parameterNotFoundAction: Deny}",
		"neither":     "{parameterNotFoundAction: Deny}",
		"no operator": "{selector: {matchExpressions: [{key: a, operator: Bad}]}, parameterNotFoundAction: Deny}",
		"nothing":     "{name: none, parameterNotFoundAction: Allow}",
		"nobody":      "{selector: {matchLabels: {a: z}}, parameterNotFoundAction: Allow}",
		"denied":      "{selector: {matchLabels: {a: z}}, parameterNotFoundAction: Deny}",
	}
}

// matchCases are about which requests a policy is for, and about its params. spec has the members of a policy that
// does something with every request.
func matchCases(r policyRequests, spec ...string) []policyCase {
	const configs, none = "{apiVersion: v1, kind: ConfigMap}", "{apiVersion: example.com/v1, kind: None}"
	const teams = "namespaceSelector: {matchLabels: {team: a}}"
	with := func(more ...string) []string { return append(spec[:len(spec):len(spec)], more...) }
	rule := func(more string) string {
		return `{resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]` + more + `}]}`
	}
	cases := []policyCase{
		{name: "no namespace", policy: with(), of: r.nowhere},
		{name: "no namespace, for a selector", policy: with("matchConstraints", strings.Replace(rule(""), "{", "{"+teams+", ",
			1)), of: r.nowhere},
		{name: "no namespace, for a selector of what is not meant", of: r.nowhere, policy: with("matchConstraints",
			strings.Replace(rule(", resourceNames: [other]"), "{", "{"+teams+", ", 1))},
		{name: "no namespace, for a selector of a binding", policy: with(), of: r.nowhere,
			binding: []string{"matchResources", "{" + teams + "}"}},
		{name: "no namespace, for a selector of a binding of what is not meant", policy: with(), of: r.nowhere,
			binding: []string{"matchResources", strings.Replace(rule(", resourceNames: [other]"), "{", "{"+teams+", ", 1)}},
		{name: "no namespace, and no such params", policy: with("paramKind", none), of: r.nowhere},
		{name: "no such params", policy: with("paramKind", none), of: r.config},
		{name: "no such params of what is not meant", policy: with("paramKind", none, "matchConstraints",
			rule(", resourceNames: [other]")), of: r.config},
		{name: "no such params, unbound", policy: with("paramKind", none), unbound: true, of: r.config},
		{name: "excluded by name", policy: with("matchConstraints", strings.Replace(rule(""), "{",
			"{excludeResourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], "+
				"resourceNames: [other]}], ", 1)), of: r.config},
		{name: "not excluded by name", policy: with("matchConstraints", strings.Replace(rule(""), "{",
			"{excludeResourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], "+
				"resourceNames: [p]}], ", 1)), of: r.config},
		{name: "a namespace", policy: with(), of: r.namespace},
		{name: "a connection", policy: with(), of: r.connect},
		{name: "a broken selector", policy: with("matchConstraints", strings.Replace(rule(""), "{",
			"{objectSelector: {matchExpressions: [{key: a, operator: Bad}]}, ", 1)), of: r.config},
		{name: "a broken selector of a binding", policy: with(), of: r.config,
			binding: []string{"matchResources", "{objectSelector: {matchExpressions: [{key: a, operator: Bad}]}}"}},
		{name: "many bindings", policy: with(), of: r.pod, bindings: map[string][]string{
			"c": {"matchResources", rule(", resourceNames: [other]")}, "d": {"matchResources", rule(", resourceNames: [p]")}}},
	}
	for name, ref := range refs() {
		for where, of := range map[string]attempt{"": r.config, ", no namespace": r.nowhere} {
			cases = append(cases, policyCase{name: "params, " + name + where, policy: with("paramKind", configs),
				binding: []string{"paramRef", ref}, of: of})
		}
	}
	return cases
}

// run compares a case, by both failure policies.
func (c policyCase) run(t *testing.T, kind string, count *tally) {
	t.Helper()
	for _, failure := range []string{"Fail", "Ignore"} {
		spec := append(c.policy[:len(c.policy):len(c.policy)], "failurePolicy", failure)
		if !strings.Contains(strings.Join(spec, " "), "matchConstraints") {
			spec = append(spec, "matchConstraints", everything)
		}
		objects := append([]string{policyOf(kind, "p", spec...)}, c.objects...)
		bindings := map[string][]string{"b": c.binding}
		if c.unbound {
			bindings = nil
		}
		for name, more := range c.bindings {
			bindings[name] = more
		}
		for name, more := range bindings {
			if kind == "ValidatingAdmissionPolicy" && !strings.Contains(strings.Join(more, " "), "validationActions") {
				more = append(more[:len(more):len(more)], "validationActions", "[Deny, Audit]")
			}
			objects = append(objects, bindingOf(kind, name, "p", more...))
		}
		before := t.Failed()
		policyWorld(t, kind, objects...).compare(t, c.of, count)
		if t.Failed() && !before {
			t.Errorf("%s, failurePolicy %s", c.name, failure)
		}
	}
}

// Validating policies: each case is about one rule.
//
// SPEC: AUTH-3
func TestCasesOfValidatingPolicies(t *testing.T) {
	r, count := newPolicyRequests(), tally{}
	validation := func(expression, message string) string {
		return "[" + fields("expression", quoted(expression), "messageExpression", message) + "]"
	}
	annotation := func(value string) []string {
		return []string{"validations", validation("true", ""), "auditAnnotations",
			"[" + fields("key", "k", "valueExpression", quoted(value)) + "]"}
	}
	// The type of namespaceObject does not have all members of a Namespace.
	const seen = "'%s %s %s %s'.format([string(has(dyn(namespaceObject).metadata.ownerReferences)), " +
		"string(has(dyn(namespaceObject).metadata.managedFields)), string(has(dyn(namespaceObject).kind)), " +
		"string(has(dyn(namespaceObject).apiVersion))])"
	const asks = "string(authorizer.requestResource.check('delete').allowed())"
	authorized := "[{name: v, expression: \"authorizer.requestResource.check('delete').allowed()\"}]"
	text := func(n int) attempt {
		return r.inDescribed(fields("text", strings.Repeat("a", n)))
	}
	cases := []policyCase{
		{name: "a whole namespace", of: r.inDescribed("{}"), policy: []string{"validations", validation("false",
			quoted(seen))}},
		{name: "a whole namespace in annotations", of: r.inDescribed("{}"), policy: annotation(seen)},
		{name: "the namespace of conditions", of: r.inDescribed("{}"), policy: []string{"validations",
			validation("false", ""), "matchConditions", "[{name: c, expression: 'namespaceObject == null'}]"}},
		{name: "no access in annotations", of: r.config, policy: annotation(asks)},
		{name: "no access in the variables of annotations", of: r.config,
			policy: append(annotation("string(variables.v)"), "variables", authorized)},
		{name: "no access in messages", of: r.config, policy: []string{"validations", validation("false", quoted(asks))}},
		{name: "no access in the variables of messages", of: r.config, policy: []string{"variables", authorized,
			"validations", validation("!variables.v", quoted("string(variables.v)"))}},
		{name: "functions of stored expressions", of: r.config, policy: []string{"validations",
			validation("[1].includes(2)", quoted("string([1].includes(1))"))}},
		{name: "functions of stored variables", of: r.config, policy: []string{"variables",
			"[{name: v, expression: '[1].includes(1)'}]", "validations", validation("!variables.v", "")}},
		{name: "many failures", of: r.config, policy: []string{"validations", listOf(60, func(i int) string {
			return fields("expression", quoted(fmt.Sprintf("%d < 0", i)))
		})}},
		{name: "two values of an annotation", of: r.pod, policy: append(annotation("string(params.metadata.name)"),
			"paramKind", "{apiVersion: v1, kind: ConfigMap}"), binding: []string{"paramRef",
			"{selector: {matchLabels: {kind: limits}}, parameterNotFoundAction: Deny}"}},
		{name: "blanks in an annotation", of: r.config, policy: annotation("'  a '")},
		{name: "an annotation of blanks", of: r.config, policy: annotation("'  '")},
		{name: "another version of a condition", of: policyAttempts()[12], policy: []string{"matchConstraints",
			`{resourceRules: [{apiGroups: [autoscaling], apiVersions: [v2], operations: ["*"], resources: ["*"]}]}`,
			"matchConditions", "[{name: c, expression: \"request.resource.version == 'v1'\"}]", "validations",
			validation("request.resource.version == 'v1'", "request.requestResource.version")}},
		{name: "a message that is no string", of: r.config, policy: []string{"validations", validation("false", "null")}},
		{name: "a message that would not ask for access", of: r.config, policy: []string{"validations",
			validation("false", quoted("true ? 'a' : "+asks))}},
		{name: "a message of several lines", of: r.config, policy: []string{"validations",
			validation("false", quoted(`'a\nb'`))}},
		{name: "blanks around a message", of: r.config, policy: []string{"validations",
			validation("false", quoted(`' \n a '`))}},
	}
	// Which version is seen is decided with the name of the object; what is excluded, by the match policy.
	const scalers = `{apiGroups: [autoscaling], apiVersions: [%s], operations: ["*"], resources: ["*"]%s}`
	for name, match := range map[string]string{
		"a name in the other version": fmt.Sprintf("{resourceRules: ["+scalers+", "+scalers+"]}", "v2",
			", resourceNames: [other]", "v1", ""),
		"a name in the same version": fmt.Sprintf("{resourceRules: ["+scalers+", "+scalers+"]}", "v1",
			", resourceNames: [other]", "v2", ""),
		"an exact exclusion": fmt.Sprintf("{matchPolicy: Exact, excludeResourceRules: ["+scalers+"], resourceRules: ["+
			scalers+"]}", "v2", "", "v1", ""),
		"an equivalent exclusion": fmt.Sprintf("{matchPolicy: Equivalent, excludeResourceRules: ["+scalers+
			"], resourceRules: ["+scalers+"]}", "v2", "", "v1", ""),
	} {
		cases = append(cases, policyCase{name: name, of: policyAttempts()[12], policy: []string{"matchConstraints", match,
			"validations", validation("false", quoted("string(object.apiVersion) + string(request.resource.version)"))}})
	}
	for _, n := range []int{5 << 10, 5<<10 + 1, 10 << 10, 10<<10 + 1} {
		cases = append(cases,
			policyCase{name: fmt.Sprint("a message of ", n), of: text(n), policy: []string{"validations",
				validation("false", quoted("string(object.data.text)"))}},
			policyCase{name: fmt.Sprint("an annotation of ", n), of: text(n), policy: annotation("string(object.data.text)")})
	}
	for _, c := range append(cases, matchCases(r, "validations", validation("namespaceObject == null",
		quoted("'it is ' + namespaceObject.metadata.name")))...) {
		c.objects = append(c.objects, described())
		c.run(t, "ValidatingAdmissionPolicy", &count)
	}
	count.atLeast(t, 0, 20, 40)
}

// Mutating policies: each case is about one rule.
//
// SPEC: AUTH-3, SSA-19
func TestCasesOfMutatingPolicies(t *testing.T) {
	r, count := newPolicyRequests(), tally{}
	patches := func(expressions ...string) []string {
		return []string{"reinvocationPolicy", "IfNeeded", "mutations", listOf(len(expressions), func(i int) string {
			return fields("patchType", "JSONPatch", "jsonPatch", fields("expression", quoted(expressions[i])))
		})}
	}
	intent := func(expression string) []string {
		return []string{"reinvocationPolicy", "Never", "mutations", "[" + fields("patchType", "ApplyConfiguration",
			"applyConfiguration", fields("expression", quoted(expression))) + "]"}
	}
	annotate := func(value string) string {
		return "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': " + value + "}}]"
	}
	// A param that is not for the request in the first pass is not used in the second, though it would be.
	later := append(patches("[JSONPatch{op: 'add', path: '/metadata/annotations', value: "+
		"(has(object.metadata.annotations) ? {'a': params.metadata.name + 'again'} : {'a': params.metadata.name})}]"),
		"paramKind", "{apiVersion: v1, kind: ConfigMap}", "matchConditions",
		"[{name: c, expression: \"params.metadata.name == 'more' || has(object.metadata.annotations)\"}]")
	more := append(patches("[JSONPatch{op: 'add', path: '/metadata/annotations', value: "+
		"{'a': (has(object.metadata.annotations) ? object.metadata.annotations.a : '') + params.metadata.name}}]"),
		later[len(patches("")):]...)
	of := []string{"paramRef", "{selector: {matchLabels: {kind: limits}}, parameterNotFoundAction: Deny}"}
	cases := []policyCase{
		{name: "a param that is for the second pass alone", policy: later, binding: of, of: r.pod},
		{name: "a param that is for the second pass alone, after another policy", policy: more, binding: of, of: r.pod,
			objects: []string{policyOf("MutatingAdmissionPolicy", "q", append(patches(
				"[JSONPatch{op: 'add', path: '/metadata/labels/q', value: 'q'}]"), "matchConstraints", everything)...),
				bindingOf("MutatingAdmissionPolicy", "q", "q")}},
		{name: "a whole namespace", of: r.inDescribed("{}"), policy: patches(annotate(
			"string(has(dyn(namespaceObject).metadata.ownerReferences)) + string(has(dyn(namespaceObject).metadata.managedFields))" +
				" + string(has(dyn(namespaceObject).kind)) + string(has(dyn(namespaceObject).apiVersion))"))},
		{name: "an intent with a kind", of: r.config, policy: intent(
			"Object{apiVersion: 'v2', kind: 'Other', metadata: Object.metadata{annotations: {'a': 'b'}}}")},
		{name: "functions of stored expressions", of: r.config, policy: patches(annotate("string([1].includes(1))"))},
		{name: "functions of stored intents", of: r.config,
			policy: intent("Object{metadata: Object.metadata{annotations: {'a': string([1].includes(1))}}}")},
		{name: "a wrong type of a core kind", of: r.pod,
			policy: intent("Object{spec: Object.spec{terminationGracePeriodSeconds: 5.5}}")},
		{name: "a wrong type of another kind", of: r.scaled,
			policy: intent("Object{spec: Object.spec{minReadySeconds: 5.5}}")},
		{name: "two steps, of which the first fails", of: r.config, policy: patches("[object.nothing]", annotate("'b'"))},
		{name: "two steps, of which the second fails", of: r.config, policy: patches(annotate("'b'"), "[object.nothing]")},
		{name: "a step that sees the other", of: r.config,
			policy: patches(annotate("'b'"), annotate("object.metadata.annotations.a + 'c'"))},
		{name: "a failed test", of: r.config, policy: patches(
			"[JSONPatch{op: 'test', path: '/metadata/name', value: 'nobody'}]", annotate("'b'"))},
		{name: "params without a kind", of: r.config, policy: append(patches(annotate(
			"string(has(params.kind)) + string(has(params.apiVersion))")), "paramKind", "{apiVersion: v1, kind: ConfigMap}"),
			binding: of},
	}
	for _, c := range append(cases, matchCases(r, patches(annotate(
		"has(object.metadata.annotations) ? object.metadata.annotations.a + 'a' : string(namespaceObject == null)"))...)...) {
		c.objects = append(c.objects, described())
		c.run(t, "MutatingAdmissionPolicy", &count)
	}
	count.atLeast(t, 15, 20, 20)
}
