package admission

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// These expressions cost any number by the lengths of their texts: the first a tenth of that of a text, times a hundred
// for a pattern of four hundred letters, and the second a tenth of that of a text. They take no time as the texts have
// no letter in common.
const (
	dearSearch  = "!object.data.long.matches(object.data.pattern)"
	cheapSearch = "!object.data.short.contains('b')"
)

// bound finds the request that just costs more than the reference allows, by the cost of its texts, and compares it and
// the one that costs one less.
func (w *world) bound(t *testing.T, of attempt, over string) {
	t.Helper()
	with := func(long, short int) attempt {
		of.object = doc("v1", "ConfigMap", "ns", "p", []string{"labels", "{hook: h}"}, "data",
			fields("long", strings.Repeat("a", 10*long), "short", quoted(strings.Repeat("a", 10*short)), "pattern",
				strings.Repeat("b", 400)))
		return of
	}
	isOver := func(long, short int) bool {
		result := w.runReference(t, with(long, short))
		return result.refusal != nil && strings.Contains(result.refusal.message, over)
	}
	const most = 9_000 // one that is much longer costs more than one expression may
	long := sort.Search(most, func(n int) bool { return isOver(n, 0) }) - 1
	short := sort.Search(most, func(n int) bool { return isOver(long, n) })
	if long <= 0 || long == most-1 || short == 0 || short == most {
		t.Fatalf("no bound is found: %d, %d", long, short)
	}
	within, above := w.compare(t, with(long, short-1), &tally{}), w.compare(t, with(long, short), &tally{})
	if within.String() == above.String() {
		t.Errorf("the results at the bound are the same: %s", within)
	}
}

// listOf is a YAML list of n items.
func listOf(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// The budgets of expressions end at the same step.
//
// SPEC: AUTH-3
func TestWhereBudgetsEnd(t *testing.T) {
	const over = "running out of cost budget"
	// The budget of match conditions allows two of the dear expressions at least, the others allow eleven.
	const few, many = 3, 12
	expression := func(i int) string {
		if i == 0 {
			return quoted(cheapSearch)
		}
		return quoted(dearSearch)
	}
	conditions := listOf(few+1, func(i int) string {
		return fields("name", fmt.Sprint("c", i), "expression", expression(i))
	})
	annotations := listOf(many+1, func(i int) string {
		return fields("key", fmt.Sprint("k", i), "valueExpression", quoted(strings.Trim(expression(i), `"`)+" ? 'a' : 'b'"))
	})
	var uses []string
	variables := listOf(many+1, func(i int) string {
		uses = append(uses, fmt.Sprint("variables.v", i))
		return fields("name", fmt.Sprint("v", i), "expression", expression(i))
	})
	holds := listOf(1, func(int) string { return fields("expression", "'true'") })
	request := policyAttempts()[7]
	for _, spec := range [][]string{
		{"validations", listOf(many+1, func(i int) string { return fields("expression", expression(i)) })},
		{"validations", holds, "matchConditions", conditions},
		{"validations", holds, "auditAnnotations", annotations},
		{"validations", listOf(many+1, func(i int) string { // all messages are evaluated with one budget
			return fields("expression", "'false'", "messageExpression", quoted(strings.Trim(expression(i), `"`)+" ? 'a' : 'b'"))
		})},
	} {
		const kind = "ValidatingAdmissionPolicy"
		policyWorld(t, kind, policyOf(kind, "p", append(spec, "matchConstraints", everything)...),
			bindingOf(kind, "b", "p", "validationActions", "[Deny, Audit]")).bound(t, request, over)
	}
	const kind = "MutatingAdmissionPolicy"
	patch := quoted("(" + strings.Join(uses, " && ") +
		") ? [JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'b'}}] : []")
	policyWorld(t, kind, policyOf(kind, "p", "matchConstraints", everything, "reinvocationPolicy", "Never", "variables",
		variables, "mutations", "["+fields("patchType", "JSONPatch", "jsonPatch", fields("expression", patch))+"]"),
		bindingOf(kind, "b", "p")).bound(t, request, over)
	h := newHookServer(t)
	request.options = optionsOf(admission.Create)
	webhookWorld(t, h, "Validating", nil, hookConfiguration("Validating", "all", labeledHook(h, "h", "allow",
		"sideEffects", "None", "admissionReviewVersions", "[v1]", "matchConditions", conditions))).bound(t, request, over)
}
