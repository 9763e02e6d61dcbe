package cel

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	limits "k8s.io/apiserver/pkg/apis/cel"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// table holds the rules of the table, with their schema and object.
type table struct {
	schema map[string]any
	object []byte
	rules  []string
}

func readTable(t *testing.T) table {
	t.Helper()
	read := func(name string) []byte {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	out := table{schema: document(t, fromYAML(t, read("schema.yaml"))), object: fromYAML(t, read("object.yaml"))}
	for line := range strings.Lines(string(read("rules.txt"))) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out.rules = append(out.rules, line)
		}
	}
	return out
}

// with returns the schema of the table with these rules at its root.
func (c table) with(t testing.TB, rules ...map[string]any) []byte {
	t.Helper()
	schema := maps.Clone(c.schema)
	schema["x-kubernetes-validations"] = rules
	return encode(t, schema)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// typed returns an expression's syntax tree, checked as the reference does for the schema of the table; nil if it does
// not compile.
func (c table) typed(t testing.TB, env *cel.Env, expression string) *cel.Ast {
	t.Helper()
	tree, issues := env.Compile(expression)
	if issues != nil {
		return nil
	}
	return tree
}

// environment returns the reference's environment for the schema of the table.
func (c table) environment(t testing.TB) *cel.Env {
	t.Helper()
	r := newReference(t, encode(t, c.schema))
	self := model.SchemaDeclType(r.structural, true).MaybeAssignTypeName("selfType1")
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("self", self.CelType()), cel.Variable("oldSelf", self.CelType())},
		DeclTypes:         []*kube.DeclType{self},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set.StoredExpressionsEnv()
}

// SPEC: EXT-1: each rule of the table compiles or fails with the same errors, in a new definition and in a stored one,
// gives the same errors and warnings for an object, and has the same cost, estimated and actual; and the table calls
// every function of the language that definitions can call.
func TestTable(t *testing.T) {
	c := readTable(t)
	env := c.environment(t)
	called := map[string]bool{}
	count := map[string]int{}
	for _, rule := range c.rules {
		tree := c.typed(t, env, rule)
		written := map[string]any{"rule": rule}
		kind := "broken"
		if tree != nil {
			for _, r := range tree.NativeRep().ReferenceMap() {
				for _, o := range r.OverloadIDs {
					called[o] = true
				}
			}
			kind = tree.OutputType().String()
			if kind == "string" {
				written = map[string]any{"rule": "self.i == 99", "messageExpression": rule}
			}
		}
		schema := c.with(t, written)
		theirs, ours := newReference(t, schema), newPlinth(t, schema)
		want, other := theirs.check(nil)
		if len(other) > 0 {
			t.Fatalf("%s: the schema is wrong: %s", rule, other)
		}
		if told := compare("checks", ours.check(nil, false), want); told != "" {
			t.Errorf("%s: %s", rule, told)
		}
		want, _ = theirs.check(theirs)
		if told := compare("checks of what is stored", ours.check(ours, true), want); told != "" {
			t.Errorf("%s: %s", rule, told)
		}
		count["check: "+fmt.Sprint(len(want) == 0)]++
		wantErrs, wantWarnings := theirs.validate(t, c.object, nil)
		gotErrs, gotWarnings := ours.validate(t, c.object, nil)
		if told := compare("errors", gotErrs, wantErrs) + compare("warnings", gotWarnings, wantWarnings); told != "" {
			t.Errorf("%s: %s", rule, told)
		}
		count[outcome(kind, wantErrs)]++
		gotErrs, gotLeft := ours.cost(t, c.object, limits.RuntimeCELCostBudget)
		wantErrs, wantLeft := theirs.cost(t, c.object, limits.RuntimeCELCostBudget)
		// The reference iterates over a map in random order, and a match in the first member costs less than one in the last.
		for range 64 {
			if wantLeft == gotLeft {
				break
			}
			wantErrs, wantLeft = theirs.cost(t, c.object, limits.RuntimeCELCostBudget)
		}
		if told := compare("errors of a default", gotErrs, wantErrs); told != "" || wantLeft != gotLeft {
			t.Errorf("%s: %d is left, the reference has %d. %s", rule, gotLeft, wantLeft, told)
		}
		if told := estimates(t, c, written, tree); told != "" {
			t.Errorf("%s: %s", rule, told)
		}
	}
	t.Log(count)
	for what, least := range map[string]int{"true": 140, "false": 40, "error": 40, "broken": 30, "message": 8,
		"check: false": 40} {
		if count[what] < least {
			t.Errorf("%s: %d rules, want at least %d", what, count[what], least)
		}
	}
	everyFunction(t, env, called)
}

func outcome(kind string, errs []string) string {
	switch {
	case kind == "broken" || kind != "bool" && kind != "string":
		return "broken"
	case len(errs) == 0:
		return "true"
	case kind == "string" && !strings.Contains(errs[0], "failed rule"):
		return "message"
	case strings.Contains(errs[0], "failed rule"):
		return "false"
	}
	return "error"
}

// estimates compares the estimated cost of a rule, which is reported only if it is over a limit: the rule is put below
// lists of more and more items until it is.
func estimates(t *testing.T, c table, rule map[string]any, tree *cel.Ast) string {
	if tree == nil {
		return ""
	}
	for items := 1; items <= 1e9; items *= 10 {
		schema := encode(t, map[string]any{"type": "object", "properties": map[string]any{"l": map[string]any{
			"type": "array", "maxItems": items, "items": json.RawMessage(c.with(t, rule))}}})
		want, _ := newReference(t, schema).check(nil)
		if len(want) == 0 {
			continue
		}
		return compare(fmt.Sprintf("estimates with %d items", items), newPlinth(t, schema).check(nil, false), want)
	}
	return ""
}

// everyFunction reports the overloads that no rule calls. Those of authorization need a variable that definitions do
// not have.
func everyFunction(t *testing.T, env *cel.Env, called map[string]bool) {
	t.Helper()
	all := 0
	for _, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			arguments := fmt.Sprint(o.ArgTypes(), o.ResultType())
			internal := strings.HasPrefix(f.Name(), "_in") || strings.HasPrefix(f.Name(), "__") || f.Name() == "in"
			if strings.Contains(arguments, "kubernetes.authorization.") || internal {
				continue
			}
			if all++; !called[o.ID()] {
				t.Errorf("no rule of the table calls %s (%s)", f.Name(), o.ID())
			}
		}
	}
	if all < 300 {
		t.Errorf("only %d overloads", all)
	}
}
