package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// aggregationBench is a bench with an aggregation controller that is not running: each test makes its passes.
type aggregationBench struct {
	*bench
	of *engine.Resource
}

func newAggregationBench(t *testing.T) *aggregationBench {
	t.Helper()
	b := newBench(t)
	return &aggregationBench{b, b.Registry.Now().Find("rbac.authorization.k8s.io", "v1", "clusterroles")}
}

// role creates a ClusterRole with the label is=NAME, with one rule for each verb, which selects the named roles.
func (b *aggregationBench) role(name, verbs string, selects ...string) {
	b.Helper()
	var rules, selectors []string
	for _, verb := range strings.Fields(verbs) {
		rules = append(rules, fmt.Sprintf(`{"verbs":[%q],"apiGroups":[""],"resources":["pods"]}`, verb))
	}
	for _, other := range selects {
		selectors = append(selectors, fmt.Sprintf(`{"matchLabels":{"is":%q}}`, other))
	}
	body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"is":%q}},"rules":[%s]`, name, name, strings.Join(rules, ","))
	if len(selectors) > 0 {
		body += `,"aggregationRule":{"clusterRoleSelectors":[` + strings.Join(selectors, ",") + `]}`
	}
	parsed, err := object.ParseJSON([]byte(body + `}`))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.Create(b.Context(), &engine.Request{Resource: b.of}, parsed); err != nil {
		b.Fatal(err)
	}
}

// aggregate makes one pass, and returns how many roles it wrote.
func (b *aggregationBench) aggregate() int64 {
	b.Helper()
	p := &aggregationPass{
		Aggregation: &Aggregation{Engine: b.Engine, Registry: b.Registry, Logger: slog.New(slog.DiscardHandler)},
		of:          b.of, user: access.ControllerAccount(aggregator), roles: map[string]*engine.Object{},
	}
	list, err := b.List(b.Context(), &engine.Request{Resource: b.of}, engine.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for role := range list.Items {
		p.roles[role.Key.Name] = role
	}
	before := b.Store.Revision()
	if err := p.aggregate(b.Context()); err != nil {
		b.Fatal(err)
	}
	return b.Store.Revision() - before
}

// verbs are the verbs of a role's rules, in their order.
func (b *aggregationBench) verbs(name string) string {
	b.Helper()
	live, err := b.Get(b.Context(), &engine.Request{Resource: b.of, Name: name}, "")
	if err != nil {
		b.Fatal(err)
	}
	obj, err := engine.ObjectOf(live.Object)
	if err != nil {
		b.Fatal(err)
	}
	var verbs []string
	for _, rule := range obj.At("rules").Items() {
		verbs = append(verbs, rule.At("verbs").Items()[0].Str())
	}
	return strings.Join(verbs, " ")
}

func (b *aggregationBench) sortedVerbs(name string) string {
	b.Helper()
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(b.verbs(name)))), " ")
}

// The rules of a role are those of the roles that it selects, by selector and then by name, each once.
//
// SPEC: AUTH-2
func TestAggregation(t *testing.T) {
	b := newAggregationBench(t)
	b.role("sum", "old", "z", "x", "none")
	b.role("x", "get list")
	b.role("z", "list watch")
	if n := b.aggregate(); n != 1 {
		t.Errorf("one role aggregates others, and %d were written", n)
	}
	if got := b.verbs("sum"); got != "list watch get" {
		t.Errorf("the aggregated role allows %q", got)
	}
	if n := b.aggregate(); n != 0 {
		t.Errorf("nothing has changed, and %d roles were written", n)
	}
}

// One pass is enough for a chain, whatever the names: a role is written after those that it selects, so that it never
// has rules that they have lost.
//
// SPEC: AUTH-2
func TestAggregationOfAChain(t *testing.T) {
	b := newAggregationBench(t)
	b.role("a", "old", "b")
	b.role("b", "old", "c")
	b.role("c", "old", "d")
	b.role("d", "get")
	if n := b.aggregate(); n != 3 {
		t.Errorf("3 roles aggregate others, and %d were written", n)
	}
	for _, name := range []string{"a", "b", "c"} {
		if got := b.verbs(name); got != "get" {
			t.Errorf("the role %s allows %q, and the one at the end of the chain \"get\"", name, got)
		}
	}
	if n := b.aggregate(); n != 0 {
		t.Errorf("nothing has changed, and %d roles were written", n)
	}
}

// Roles that select each other converge: if each pass gave each role the rules that another role had before, the rules
// would circulate forever, and each write would cause the next pass.
//
// SPEC: AUTH-2
func TestAggregationOfCyclesEnds(t *testing.T) {
	for name, roles := range map[string]string{
		"two":             "a:b b:a",
		"three":           "a:b b:c c:a",
		"three, backward": "a:c b:a c:b",
		"two cycles":      "a:b b:a,c c:b",
		"with itself":     "a:a,b b:a",
		"all of four":     "a:b,c,d b:a,c,d c:a,b,d d:a,b,c",
		"a long way back": "a:b b:c c:d d:b,e e:a",
	} {
		t.Run(name, func(t *testing.T) {
			b := newAggregationBench(t)
			var names []string
			for _, role := range strings.Fields(roles) {
				name, selects, _ := strings.Cut(role, ":")
				b.role(name, "verb-of-"+name, strings.Split(selects, ",")...)
				names = append(names, name)
			}
			passes := 1
			for ; b.aggregate() > 0; passes++ {
				if passes > len(names)+1 {
					t.Fatalf("after %d passes roles still change: the first one allows %q", passes, b.verbs(names[0]))
				}
			}
			want := b.sortedVerbs(names[0])
			for _, name := range names[1:] {
				if got := b.sortedVerbs(name); got != want {
					t.Errorf("%s allows %q, and %s, with which it is in a cycle, %q", name, got, names[0], want)
				}
			}
		})
	}
}
