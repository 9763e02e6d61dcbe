package merge

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutations = flag.Int("mutations", 0,
	"break plinth/merge in this many ways, one after the other, and see that the histories tell; -1: in all of them")

// mutants are changes to plinth/merge that the histories or the scenarios have to notice: a file, a text in it, and its
// replacement.
var mutants = []struct{ file, old, new string }{
	{"set.go", "			case deep:\n				rest = node{}", "			case deep:\n				rest.marks = 0"},
	{"set.go", "			if b.marks&which != 0 {\n				n.marks = a.marks", "			if b.marks != 0 {\n				n.marks = a.marks"},
	{"set.go", "out = append(out, node{a.element, a.marks | b.marks, a.below.union(b.below)})",
		"out = append(out, node{a.element, a.marks | b.marks, a.below})"},
	{"fieldset.go", "if first == i || s.strict {", "if s.strict {"},
	{"fieldset.go", "!declared || m.Value.IsNull() ||", "!declared ||"},
	{"fieldset.go", "m.Value.Kind() == object.Map && m.Value.Len() == 0",
		"m.Value.Kind() == object.List && m.Value.Len() == 0"},
	{"compare.go", "m |= removed", "m |= touched"},
	{"compare.go", "	if old != new {", "	if false {"},
	{"compare.go", "			if !sameItems(olds, i, before, news, j, now) {", "			if false {"},
	{"compare.go", "if s == leaf || atomic(t, s) || !eitherHas(before, now, kind) {",
		"if s == leaf || atomic(t, s) || kind == object.Null {"},
	{"join.go", "z.shared < len(z.want) && !same(z.wants.ids[z.shared], z.olds.ids[i])", "z.shared < 0"},
	{"join.go", "if k < 0 || z.olds.next(k) >= 0 {", "if k < 0 {"},
	{"prune.go", "if last.APIVersion == writer.APIVersion && last.set.within(writer.set) {", "if true {"},
	{"prune.go", "still := fieldsOf(p, t).withStructs(t).Union(set.withStructs(t))",
		"still := fieldsOf(p, t).withStructs(t)"},
	{"prune.go", "Minus(still).Intersect(lastSet)", "Minus(still)"},
	{"reconcile.go", "of != nil && !schemaless(of)", "of != nil"},
	{"reconcile.go", "n.marks, n.below = owned, Set{}", "n.marks = owned"},
	{"managers.go", "const maxUpdaters = 10", "const maxUpdaters = 11"},
	{"managers.go", "	if e.Operation != OperationApply {\n", "	if false {\n"},
	{"merge.go", "		now.set = now.set.Union(o.entries[at].set)\n", ""},
	{"merge.go", "now.set = diff.only(touched).Minus(unowned)", "now.set = diff.only(touched)"},
	{"merge.go", "	if changed {\n", "	if true {\n"},
	{"merge.go", "e.set.minus(diff, touched|removed, false)", "e.set.minus(diff, touched, false)"},
	{"merge.go", "		if t == nil {\n			continue\n		}\n		if set",
		"		if t == nil {\n			kept = append(kept, e)\n			continue\n		}\n		if set"},
	{"merge.go", "len(o.entries) == 0 && live.At(\"metadata\", \"uid\").Str() != \"\"", "false"},
	{"conflict.go", "c.lost.Minus(fields); !lost.Empty()", "c.lost.Minus(fields); fields.Empty()"},
	{"lastapplied.go", "	if annotations.At(LastApplied).Str() == \"\" {\n		return merged\n	}\n",
		"	if true {\n		return merged\n	}\n"},
	{"scale.go", "main.APIVersion, main.Time = apiVersion, \"\"", "main.APIVersion = apiVersion"},
	{"merge.go", "return s.MinusAll(o.kind.Reset[version])", "return s.Minus(o.kind.Reset[version])"},
	{"shape.go", "	v := f.Implied()\n", "	v := object.Nil\n"},
	{"element.go", "object.Int: 0, object.Float: 0,", "object.Int: 0, object.Float: 1,"},
	{"fieldsv1.go", "p.noncanonical = p.noncanonical || !same\n", "_ = same\n"},
}

func TestMutantsAreNoticed(t *testing.T) {
	n := *mutations
	if n < 0 || n > len(mutants) {
		n = len(mutants)
	}
	for i, m := range mutants {
		path, err := filepath.Abs(filepath.Join("..", "..", "..", "merge", m.file))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), m.old) != 1 {
			t.Errorf("%s: %q stands there %d times", m.file, m.old, strings.Count(string(text), m.old))
			continue
		}
		if i >= n { // every run checks that the change can be made
			continue
		}
		dir := t.TempDir()
		mutant := filepath.Join(dir, m.file)
		if err := os.WriteFile(mutant, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("go", "test", "-overlay", filepath.Join(dir, "overlay.json"), ".", "-run",
			"TestHistories|TestScenarios",
			"-histories", "3000", "-enough", "1").CombinedOutput()
		switch {
		case err == nil:
			t.Errorf("%s: no test notices that %q was replaced by %q", m.file, m.old, m.new)
		case !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "panic:"):
			t.Errorf("%s: %q is no program:\n%s", m.file, m.new, out)
		}
	}
}
