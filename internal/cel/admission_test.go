package cel

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/object"
)

// SPEC: AUTH-3
func TestMatchConditions(t *testing.T) {
	parse := func(text string) object.Value {
		p, err := object.ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Value
	}
	scope := NewScope(false, false)
	request := parse(`{"name":"a","operation":"CREATE","userInfo":{"username":"jane","groups":["g"]},"requestResource":
		{"group":"apps","version":"v1","resource":"deployments"},"namespace":"ns"}`)
	in := &AdmissionInput{
		Object:  parse(`{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"replicas":3,"ratio":0.5}}`),
		Request: func() object.Value { return request },
		User:    access.User{Name: "jane"},
		Authorizer: access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
			if a.User.Name == "jane" && a.Verb == "breakglass" && a.Resource == "deployments" && a.Namespace == "ns" {
				return access.Allow, "", nil
			}
			return access.NoOpinion, "", nil
		}),
	}
	for source, want := range map[string]string{
		`object.spec.replicas == 3 && object.spec.ratio < 1.0`: "true",
		`oldObject == null`:                                            "true",
		`namespaceObject == null`:                                      "true",
		`request.userInfo.username == 'jane'`:                          "true",
		`'h' in request.userInfo.groups`:                               "false",
		`authorizer.requestResource.check('breakglass').allowed()`:     "true",
		`authorizer.requestResource.check('get').allowed()`:            "false",
		`authorizer.group('').resource('pods').check('get').allowed()`: "false",
		`authorizer.path('/healthz').check('breakglass').allowed()`:    "false",
		`object.spec.none == 1`:                                        "no such key: none",
		`object.spec.`:                                                 "compilation failed",
		`1`:                                                            "must evaluate to bool but got int",
		`nobody`:                                                       "undeclared reference",
		`request.object == null`:                                       "undefined field 'object'",
		`has(object.metadata.labels) && object.metadata.labels.x == 'y'`: "true",
	} {
		condition := []*AdmissionExpression{scope.Compile(Condition, source, true)}
		holds, failed, stop := scope.Evaluate(t.Context(), in, MatchConditionsBudget).Holds(condition)
		switch {
		case want == "true" || want == "false":
			if stop != nil || failed != nil || holds != (want == "true") {
				t.Errorf("%s: %v, %v, %v", source, holds, failed, stop)
			}
		case stop != nil || len(failed) != 1 || !strings.Contains(failed[0].Error(), want):
			t.Errorf("%s: %v, %v, want %q", source, failed, stop, want)
		}
	}
	dear := []*AdmissionExpression{scope.Compile(Condition, `object.spec.replicas + 1 == 4`, true)}
	if _, _, stop := scope.Evaluate(t.Context(), in, 2).Holds(dear); !errors.Is(stop, ErrOutOfBudget) {
		t.Errorf("a condition above its budget: %v", stop)
	}
	if err := scope.Compile(Condition, `object.x`, false).Err(); err == nil ||
		!strings.Contains(err.Error(), "must evaluate to bool") {
		t.Errorf("a condition of type dyn: %v", err)
	}
}
