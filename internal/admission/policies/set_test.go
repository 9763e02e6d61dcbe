package policies

import (
	"fmt"
	"runtime"
	"testing"

	"plinth/internal/admission/hooks"
	"plinth/internal/builtin"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/object"
)

// idle makes policies for Pods, and their bindings.
func idle(t testing.TB, n int) *set {
	policies, bindings := &named[policy]{}, &named[binding]{}
	var cache cel.Cache
	for i := range n {
		parse := func(text string) object.Value {
			p, err := object.ParseJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return p.Value
		}
		p := newPolicy(parse(fmt.Sprintf(`{"metadata":{"name":"p%04d"},"spec":{"matchConstraints":{"resourceRules":[
			{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},"variables":[{"name":"c",
			"expression":"object.spec.containers"}],"validations":[{"expression":"variables.c.all(c, c.image != '')",
			"messageExpression":"'of ' + object.metadata.name"}]}}`, i)), &cache)
		b := newBinding(parse(fmt.Sprintf(`{"metadata":{"name":"b%04d"},"spec":{"policyName":"p%04d",
			"validationActions":["Deny"]}}`, i, i)))
		policies.all = append(policies.all, entry[policy]{p.name, func() (*policy, error) { return p, nil }})
		bindings.all = append(bindings.all, entry[binding]{b.name, func() (*binding, error) { return b, nil }})
	}
	return newSet(policies, bindings)
}

// Policies that no request matches are not compiled, and one that was matched is compiled once.
//
// SPEC: AUTH-3
func TestPoliciesAreCompiledWhenTheyMatch(t *testing.T) {
	types := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now()
	url := func(resource string) hooks.URL {
		rq := &engine.Request{Resource: types.Find("", "v1", resource), Namespace: "ns"}
		return hooks.URLOf(&engine.Attributes{Request: rq, Operation: engine.OperationCreate})
	}
	s := idle(t, 100)
	if found := s.candidates(types, url("configmaps")); len(found) != 0 {
		t.Errorf("%d policies match", len(found))
	}
	found := s.candidates(types, url("pods"))
	if len(found) != 100 {
		t.Fatalf("%d policies match", len(found))
	}
	for _, c := range found {
		if c.program.Compiled() {
			t.Fatalf("%s is compiled", c.policy.name)
		}
	}
	first := found[0].program.Get()
	if again := found[0].program.Get(); first != again || !found[0].program.Compiled() || found[1].program.Compiled() {
		t.Error("a policy is not compiled once, and alone")
	}
}

// BenchmarkIdlePolicies measures the memory of a policy that no request has matched.
func BenchmarkIdlePolicies(b *testing.B) {
	const n = 1000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s *set
	for b.Loop() {
		s = idle(b, n)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "bytes/policy")
	runtime.KeepAlive(s)
}
