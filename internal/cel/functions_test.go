package cel

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
)

// SPEC: EXT-1: the functions, macros and variables of both environments are those of the reference, no more and no
// fewer. The tables are written by conformance/oracle/cel.
func TestFunctions(t *testing.T) {
	for file, make := range map[string]func() (*cel.Env, error){"new.txt": newRules, "stored.txt": storedRules} {
		env, err := make()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSpace(string(text)), "\n")
		got := functions(env)
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("%s: too much: %s", file, line)
			}
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("%s: missing: %s", file, line)
			}
		}
		if len(want) < 300 {
			t.Errorf("%s has only %d lines", file, len(want))
		}
	}
}

func functions(env *cel.Env) (lines []string) {
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
	return lines
}
