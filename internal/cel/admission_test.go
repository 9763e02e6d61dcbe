package cel

import (
	"context"
	"errors"
	"fmt"
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

// A variable is evaluated when an expression first uses it, once for all expressions on a request, and not if none uses
// it. Each variable here asks the authorizer, which counts.
//
// SPEC: AUTH-3
func TestVariablesAreLazy(t *testing.T) {
	asked := map[string]int{}
	in := &AdmissionInput{
		Object: object.Fields("spec", object.Fields("replicas", object.IntOf(3))),
		Authorizer: access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
			asked[a.Resource]++
			return access.Allow, "", nil
		}),
	}
	scope := NewScope(false, true)
	for _, v := range [][2]string{
		{"first", `authorizer.group('').resource('first').check('get').allowed()`},
		{"second", `variables.first && authorizer.group('').resource('second').check('get').allowed()`},
		{"failing", `authorizer.group('').resource('failing').check('get').allowed() && object.spec.none == 1`},
		{"unused", `authorizer.group('').resource('unused').check('get').allowed()`},
	} {
		if err := scope.Add(v[0], v[1], false).Err(); err != nil {
			t.Fatal(err)
		}
	}
	e := scope.Evaluate(t.Context(), in, PolicyBudget)
	for _, step := range []struct {
		source, want string // want: what was asked up to now
		fails        bool
	}{
		{`object.spec.replicas == 3`, `map[]`, false},
		{`object.spec.replicas == 3 || variables.first`, `map[]`, false},
		{`variables.second && variables.second && [1, 2, 3].all(x, x > 0 && variables.second)`, `map[first:1 second:1]`, false},
		{`variables.first && variables.second`, `map[first:1 second:1]`, false},
		{`variables.failing`, `map[failing:1 first:1 second:1]`, true},
		{`variables.failing || variables.first`, `map[failing:1 first:1 second:1]`, false},
	} {
		holds, err, stop := e.Test(scope.Compile(Condition, step.source, false))
		if stop != nil || (err != nil) != step.fails || holds == step.fails {
			t.Errorf("%s: %v, %v, %v", step.source, holds, err, stop)
		}
		if got := fmt.Sprint(asked); got != step.want {
			t.Errorf("after %s the authorizer was asked %s, want %s", step.source, got, step.want)
		}
	}
	if holds, err, stop := e.Continue(in).Test(scope.Compile(Condition, `variables.first`, false)); !holds || err != nil ||
		stop != nil || asked["first"] != 2 {
		t.Errorf("another evaluation: %v, %v, %v, asked %v", holds, err, stop, asked)
	}
}
