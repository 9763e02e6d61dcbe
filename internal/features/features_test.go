package features

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDefaults(t *testing.T) {
	set, ignored, err := Parse("")
	if err != nil || len(ignored) > 0 || set != (Set{}) {
		t.Errorf("an empty text is parsed as %v, %v, %v", set, ignored, err)
	}
	for gate, on := range map[Gate]bool{
		CBORServingAndStorage: true, ManagedFieldsOptOut: true, // not so in the reference
		APIResponseCompression: true, ShardedListAndWatch: false, StrictIPCIDRValidation: true, AllAlpha: false,
	} {
		if set.On(gate) != on {
			t.Errorf("%s is %v", gate, !on)
		}
	}
	for gate, on := range differs {
		if gate.row().on == on {
			t.Errorf("%s does not differ from the reference", gate)
		}
	}
}

func TestWith(t *testing.T) {
	for g := range gates {
		for _, on := range []bool{true, false, true} {
			set := Set{}.With(g, on)
			for other := range gates {
				if want := other == g && on || other != g && other.byDefault(); set.On(other) != want {
					t.Fatalf("with %s %v, %s is %v", g, on, other, !want)
				}
			}
			if set.With(g, g.byDefault()) != (Set{}) {
				t.Fatalf("%s does not go back to its default", g)
			}
		}
	}
}

// The errors are those of the reference; conformance/oracle/features compares them with it.
//
// SPEC: RUN-1
func TestParse(t *testing.T) {
	for _, test := range []struct {
		text    string
		on, off []Gate
		ignored string
		err     string
	}{
		{text: "ShardedListAndWatch=true,,ComponentFlagz=false", on: []Gate{ShardedListAndWatch},
			off: []Gate{ComponentFlagz}},
		{text: " kube : ShardedListAndWatch = 1 ", on: []Gate{ShardedListAndWatch}},
		{text: "WatchList=true,APIServingWithRoutine=true", ignored: "APIServingWithRoutine WatchList"},
		{text: "WatchList=false,WatchList=true", on: []Gate{WatchList}, ignored: "WatchList"},
		{text: "AllAlpha=false", off: []Gate{CBORServingAndStorage, ManagedFieldsOptOut}, on: []Gate{APIResponseCompression}},
		{text: "CBORServingAndStorage=true,AllAlpha=false", on: []Gate{CBORServingAndStorage},
			off: []Gate{ManagedFieldsOptOut}},
		{text: "Nope=true", err: "unrecognized feature gate: Nope"},
		{text: "WatchList", err: "missing bool value for WatchList"},
		{text: "WatchList=maybe",
			err: `invalid value of WatchList=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax`},
		{text: "DRAAdminAccess=true", on: []Gate{DRAAdminAccess}},
		{text: "DRAAdminAccess=false", err: "cannot set feature gate DRAAdminAccess to false, feature is locked to true"},
		{text: "WorkloadWithJob=true",
			err: "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]"},
		{text: "WorkloadWithJob=true,GenericWorkload=true", on: []Gate{WorkloadWithJob, GenericWorkload}},
		{text: "wardle:WatchList=true", err: "component not registered: wardle"},
		{
			text: "kube:WatchList=true,ComponentFlagz=true",
			err:  "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
		},
	} {
		set, ignored, err := Parse(test.text)
		if err != nil || test.err != "" {
			if err == nil || err.Error() != test.err || set != (Set{}) {
				t.Errorf("%q: error %v, want %s", test.text, err, test.err)
			}
			continue
		}
		for _, g := range test.on {
			if !set.On(g) {
				t.Errorf("%q: %s is off", test.text, g)
			}
		}
		for _, g := range test.off {
			if set.On(g) {
				t.Errorf("%q: %s is on", test.text, g)
			}
		}
		if got := strings.Join(ignored, " "); got != test.ignored {
			t.Errorf("%q: ignored %q, want %q", test.text, got, test.ignored)
		}
	}
}

// Of the gates that AllAlpha and AllBeta change, those without effect in Plinth are reported as ignored.
//
// SPEC: RUN-1
func TestAllOfAStageIsIgnoredWhereItMeansNothing(t *testing.T) {
	_, ignored, err := Parse("AllAlpha=true,AllBeta=true")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range used {
		if slices.Contains(ignored, g.String()) {
			t.Errorf("%s has an effect, but is ignored", g)
		}
	}
	if len(ignored) < 25 || !slices.Contains(ignored, "APIServingWithRoutine") || slices.Contains(ignored, "WatchList") {
		t.Errorf("the ignored gates are %v", ignored)
	}
}

// The list of used gates is compared with the code: a gate that the code uses and the list lacks would be reported as
// ignored, and a gate of the list that the code does not use would have no effect, without a report.
func TestUsedGatesAreUsed(t *testing.T) {
	found := map[string]bool{}
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(parsed.Imports,
				func(i *ast.ImportSpec) bool {
					return i.Path.Value == `"plinth/internal/features"`
				}) {
				return nil
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := s.X.(*ast.Ident); ok && of.Name == "features" {
						if _, is := Find(s.Sel.Name); is {
							found[s.Sel.Name] = true
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range used {
		if !found[g.String()] {
			t.Errorf("the code does not use %s", g)
		}
		delete(found, g.String())
	}
	for name := range found {
		t.Errorf("the code uses %s, which is not in the list", name)
	}
}
