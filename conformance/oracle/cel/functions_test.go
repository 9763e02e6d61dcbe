package cel

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"plinth/conformance/internal/linediff"
	"plinth/internal/features"
)

var rewrite = flag.Bool("rewrite", false, "write what upstream says into the tables of internal/cel")

// SPEC: EXT-1: the tables that package internal/cel compares its environments with are those of the reference.
func TestFunctions(t *testing.T) {
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	if now := version.MajorMinor(1, 36); !environment.DefaultCompatibilityVersion().EqualTo(now) {
		t.Fatalf("new rules are compiled as in %s, not as in %s", environment.DefaultCompatibilityVersion(), now)
	}
	for file, env := range map[string]*cel.Env{"new.txt": set.NewExpressionsEnv(),
		"stored.txt": set.StoredExpressionsEnv()} {
		path := "../../../internal/cel/testdata/" + file
		want := functions(env)
		if *rewrite {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s differs from the reference; see -rewrite", path)
		}
		if n := strings.Count(want, "\n"); n < 300 {
			t.Errorf("only %d lines", n)
		}
	}
}

// SPEC: EXT-1: with --min-compatibility-version=1.37 new expressions are compiled as stored ones are, and with any
// older release that is possible as they are with 1.36.
func TestFunctionsByRelease(t *testing.T) {
	latest := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for v := features.Oldest; !v.After(features.Current.Emulated); v.Minor++ {
		versions, err := features.ParseVersions(nil, []string{v.String()})
		if err != nil {
			t.Fatal(err)
		}
		want := functions(latest.NewExpressionsEnv())
		if versions.LatestExpressions() {
			want = functions(latest.StoredExpressionsEnv())
		}
		set := environment.MustBaseEnvSet(version.MajorMinor(uint(v.Major), uint(v.Minor)))
		if got := functions(set.NewExpressionsEnv()); got != want {
			t.Errorf("%v: %s", v, linediff.Diff(want, got))
		}
	}
}

// functions lists the overloads and macros of an environment, one on each line.
func functions(env *cel.Env) string {
	var lines []string
	for _, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			lines = append(lines, fmt.Sprintf("%s %s %v %v %v", f.Name(), o.ID(), o.IsMemberFunction(), o.ArgTypes(),
				o.ResultType()))
		}
	}
	for _, m := range env.Macros() {
		lines = append(lines, fmt.Sprintf("macro %s %d %v", m.Function(), m.ArgCount(), m.IsReceiverStyle()))
	}
	for _, v := range env.Variables() {
		lines = append(lines, fmt.Sprintf("variable %s %v", v.Name(), v.Type()))
	}
	for _, v := range env.Validators() {
		lines = append(lines, "validator "+v.Name())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
