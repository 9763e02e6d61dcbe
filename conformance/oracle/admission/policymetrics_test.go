package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ours "plinth/internal/admission"
	"plinth/internal/admission/policies"
	"plinth/internal/engine"
)

// policyMetrics are the metrics of policies that are compared, and their labels in the order of a series. Durations are
// counted.
var policyMetrics = map[string][]string{
	"validating_admission_policy_check_total":            {"policy", "policy_binding", "error_type", "enforcement_action"},
	"validating_admission_policy_check_duration_seconds": {"policy", "policy_binding", "error_type", "enforcement_action"},
	"mutating_admission_policy_check_total":              {"policy", "policy_binding", "error_type"},
	"mutating_admission_policy_check_duration_seconds":   {"policy", "policy_binding", "error_type"},
	"admission_match_condition_evaluation_errors_total":  {"kind", "name", "type", "operation"},
	"admission_match_condition_evaluation_seconds":       {"kind", "name", "type", "operation"},
}

// gatherPolicies reads the reference's metrics.
func gatherPolicies(t *testing.T) map[string]int {
	t.Helper()
	return gather(t, func(metric string, labels map[string]string) string {
		name := strings.TrimPrefix(metric, "apiserver_")
		if policyMetrics[name] == nil || labels["kind"] == "webhook" {
			return ""
		}
		return seriesOf(name, labels, policyMetrics[name])
	})
}

// countPolicies are metrics of ours that count.
func countPolicies(f *figures) ours.Metrics {
	hooks := func(validating bool) policies.Metrics {
		return policies.Metrics{
			Checked: func(policy, binding, failure, action string, _ time.Duration) {
				for _, metric := range []string{"check_total", "check_duration_seconds"} {
					if validating {
						f.add(1, "validating_admission_policy_"+metric, policy, binding, failure, action)
					} else {
						f.add(1, "mutating_admission_policy_"+metric, policy, binding, failure)
					}
				}
			},
			ConditionsRun: func(policy string, operation engine.Operation, failed int, _ time.Duration) {
				f.add(1, "admission_match_condition_evaluation_seconds", "policy", policy, "validate", operation.String())
				f.add(failed, "admission_match_condition_evaluation_errors_total", "policy", policy, "validate",
					operation.String())
			},
		}
	}
	return ours.Metrics{Validating: hooks(true), Mutating: hooks(false)}
}

// The metrics of policies count the same.
//
// SPEC: AUTH-3
func TestMetricsOfPolicies(t *testing.T) {
	counted, count := &figures{}, tally{}
	before := gatherPolicies(t)
	for seed := range uint64(80) {
		for _, kind := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
			r := seeded(9<<32 + seed)
			objects, attempts := r.validatingPolicy("one"), policyAttempts()
			if kind == "MutatingAdmissionPolicy" {
				objects, attempts = r.mutatingPolicy("one"), attempts[:len(attempts)-converted]
			}
			w := measuredPolicies(t, kind, counted, objects...)
			for range 6 {
				w.compare(t, attempts[r.IntN(len(attempts))], &count)
			}
		}
	}
	// An expression whose policy has no budget left.
	const dear = "!object.data.text.matches(object.data.pattern)"
	long := policyAttempts()[7]
	long.object = doc("v1", "ConfigMap", "ns", "p", nil, "data",
		fields("text", strings.Repeat("a", 80_000), "pattern", strings.Repeat("b", 400)))
	uses := "true"
	variables := listOf(14, func(i int) string {
		uses += fmt.Sprint(" && variables.v", i)
		return fields("name", fmt.Sprint("v", i), "expression", quoted(dear))
	})
	spec := []string{"matchConstraints", everything, "variables", variables, "reinvocationPolicy", "Never", "mutations",
		"[" + fields("patchType", "JSONPatch", "jsonPatch", fields("expression", quoted(uses+" ? [] : []"))) + "]"}
	measuredPolicies(t, "MutatingAdmissionPolicy", counted, policyOf("MutatingAdmissionPolicy", "p", spec...),
		bindingOf("MutatingAdmissionPolicy", "b", "p")).compare(t, long, &count)
	measuredPolicies(t, "ValidatingAdmissionPolicy", counted, policyOf("ValidatingAdmissionPolicy", "p",
		"matchConstraints", everything, "validations",
		listOf(14, func(int) string { return fields("expression", quoted(dear)) })),
		bindingOf("ValidatingAdmissionPolicy", "b", "p", "validationActions", "[Deny, Audit]")).compare(t, long, &count)
	compareMetrics(t, before, gatherPolicies(t), counted, 20)
}
