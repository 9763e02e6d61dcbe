package admission

import (
	"encoding/json"
	"regexp"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kubernetes/pkg/generated/openapi"

	"plinth/conformance/internal/scheme"
	"plinth/internal/admission/policies"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

// unique matches the numbers that make the names of types unique.
var unique = regexp.MustCompile(`\d{4,}`)

// The warnings about types are those of the reference.
//
// SPEC: AUTH-3
func TestTypeChecking(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	mapper := meta.NewDefaultRESTMapper(nil)
	for r := range registry.Now().All() {
		gv := scheme.Scheme.PrioritizedVersionsForGroup(r.Group)
		for _, v := range gv {
			if v.Version != r.Version || r.Answer != nil {
				continue
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			mapper.AddSpecific(v.WithKind(r.Kind), v.WithResource(r.Name), v.WithResource(r.Singular), scope)
		}
	}
	checker := validating.TypeChecker{
		SchemaResolver: resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme),
		RestMapper:     mapper,
	}
	more := []string{
		`object.spec.replicas > '1'`, `object.spec.template.spec.containers.all(c, c.imagePullPolicy == 1)`,
		`object.metadata.creationTimestamp > timestamp('2020-01-01T00:00:00Z')`, `object.spec.nothing == 1`,
		`object.spec.containers[0].resources.limits.cpu == '1'`, `object.spec.ports[0].targetPort == 80`,
		`object.data['a'] == b'x'`, `object.binaryData['a'] == b'x'`, `object.metadata.managedFields[0].fieldsV1 == null`,
		`params.data.x == 1`, `params.nothing`, `object.spec.volumes.exists(v, has(v.configMap) && v.configMap.nam == '')`,
		`object.metadata.annotations['x'] + 1 == 2`, `object.spec.namespace__ == ''`, `object.status.conditions.size() > 'a'`,
		`oldObject.spec.replica == 1`, `authorizer.requestResource.check('x').allowed()`,
		`object.webhooks[0].rules[0].scope == 1`,
		`object.spec.strategy.rollingUpdate.maxSurge == '25%'`, `request.nothing == ''`, `object.items.size() == 1`,
		`variables.name + 1 == 2`, `variables.nothing == 1`, `object.spec.template.metadata.labels.all(k, k == 1)`,
		`object.spec.containers.map(c, c.ports).size() == ''`, `object.roleRef.nam == ''`,
		`object.rules[0].verbs == ['a', 1]`,
	}
	warned, silent := 0, 0
	for seed := range uint64(400) {
		r := seeded(2<<32 + seed)
		rules := r.times(1+r.IntN(2), func() string {
			if r.IntN(6) == 0 { // one kind in two versions, and names beside wildcards
				return "{" + r.one(`apiGroups: [autoscaling], apiVersions: [v1, v2], resources: [horizontalpodautoscalers]`,
					`apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers]`,
					`apiGroups: ["", "*"], apiVersions: [v1], resources: [pods]`,
					`apiGroups: [""], apiVersions: [v1, "*"], resources: [pods]`) + `, operations: ["*"]}`
			}
			return fields("apiGroups", r.one(`[""]`, `[apps]`, `["*"]`, `[rbac.authorization.k8s.io, ""]`),
				"apiVersions", r.one(`[v1]`, `[v1]`, `[v1, v2]`, `["*"]`), "operations", `["*"]`, "resources",
				r.one(`[pods]`, `[deployments, pods/status]`, `[configmaps, secrets, services]`, `["*"]`, `[events]`,
					`[pod, deployment]`, `[rolebindings, clusterroles]`, `[nothings]`,
					`[pods, services, secrets, nodes, configmaps, endpoints, events, namespaces, limitranges, serviceaccounts, podtemplates]`))
		})
		expression := func() string {
			pool := more
			if r.IntN(3) == 0 {
				pool = expressions()[r.one("conditions", "paramConditions", "variableConditions")]
			}
			return quoted(r.one(pool...))
		}
		text := policyOf("ValidatingAdmissionPolicy", "p", "matchConstraints", fields("resourceRules", rules),
			"paramKind", r.one("", "{apiVersion: v1, kind: ConfigMap}", "{apiVersion: a/v1, kind: None}"), "variables",
			r.one("", `[{name: name, expression: object.metadata.name}, {name: broken, expression: object.nothing}, {name: list, expression: "[object.metadata.name]"}]`),
			"validations", r.times(1+r.IntN(3), func() string {
				message := ""
				if r.IntN(3) == 0 {
					message = quoted(r.one(append(expressions()["messages"], `string(object.spec.replicas) + object.metadata.nam`)...))
				}
				return fields("expression", expression(), "messageExpression", message)
			}))
		policy, ok := versioned(t, text).(*admissionregistration.ValidatingAdmissionPolicy)
		if !ok {
			t.Fatal(text)
		}
		theirs, err := json.Marshal(checker.Check(policy))
		if err != nil {
			t.Fatal(err)
		}
		found, err := policies.TypeWarnings(registry.Now(), parse(t, text))
		if err != nil {
			t.Fatal(err)
		}
		mine, err := json.Marshal(object.ListOf(found...).Native())
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			warned++
		} else {
			silent++
			mine = []byte("null")
		}
		if a, b := unique.ReplaceAllString(string(theirs), "N"), unique.ReplaceAllString(string(mine), "N"); a != b {
			t.Fatalf("%s\n--- reference\n%s\n--- ours\n%s", text, a, b)
		}
	}
	if warned < 150 || silent < 50 {
		t.Errorf("%d policies have warnings, %d have none", warned, silent)
	}
}
