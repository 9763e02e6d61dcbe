package envtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"plinth/conformance/internal/modules"
	"plinth/conformance/internal/reference"
	"plinth/conformance/internal/waiting"
)

// The suite that is run three ways: in the sources of Cluster API, and its port in this module.
const (
	original = "core/reconcilers/clusterresourceset"
	ported   = "client/plinthtest/clusterresourcesets"
)

// counterparts has, for each test of the original, that of the port.
func counterparts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "counterparts.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		port, of, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			t.Fatalf("the line %q has one name", line)
		}
		all[of] = port
	}
	return all
}

// The tests of Cluster API for its ClusterResourceSets, on the reference, on Plinth in its place, and ported to
// plinthtest, side by side: how long they take, the CPU time of the tests and of their servers, and how much of
// their code waits (package waiting has the rule). The port has a counterpart of each test.
//
// SPEC: BEY-7, RUN-2
func TestThreeWays(t *testing.T) {
	if asked := os.Getenv("ENVTEST_SUITES"); asked != "1" && !slices.Contains(strings.Split(asked, ","), "plinthtest") {
		t.Skip("ENVTEST_SUITES does not ask for it")
	}
	theirs, err := reference.Build(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "cluster-api")
	for _, p := range projects {
		if p.name != "cluster-api" {
			continue
		}
		if err := modules.Copy(source, p.modules); err != nil {
			t.Fatal(err)
		}
	}
	module, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	there, here := filepath.Join(source, original), filepath.Join(module, ported)
	suite, port := buildTests(t, source, original), buildTests(t, module, ported)
	ways := []struct {
		name    string
		folder  string
		outcome *outcome
	}{
		{"envtest, the reference", there, run(t, suite, there, "KUBEBUILDER_ASSETS="+theirs)},
		{"envtest, Plinth", there, run(t, suite, there, "KUBEBUILDER_ASSETS="+assets(t))},
		{"plinthtest", here, run(t, port, here)},
	}
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(rows, "way\ttests\twall\tCPU\tlines\twaiting statements\tlines of these\t")
	counts := map[string]waiting.Count{}
	for _, way := range ways {
		if counts[way.folder], err = waiting.Folder(way.folder); err != nil {
			t.Fatal(err)
		}
		c, o := counts[way.folder], way.outcome
		fmt.Fprintf(rows, "%s\t%d\t%.1f s\t%.1f s\t%d\t%d\t%d\t\n", way.name, len(o.leaves()), o.took.Seconds(),
			o.cpu.Seconds(), c.Code, c.Statements, c.Lines)
		for name, state := range o.states {
			if state != "passed" {
				t.Errorf("%s: %s %s", way.name, name, state)
			}
		}
	}
	if err := rows.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("ClusterResourceSets of Cluster API\n%s", &table)
	pairs := counterparts(t)
	tests, copied := ways[0].outcome.leaves(), ways[2].outcome.leaves()
	if want := slices.Sorted(maps.Keys(pairs)); !slices.Equal(tests, want) {
		t.Errorf("the original has the tests\n%s\nand the table of counterparts\n%s", strings.Join(tests, "\n"),
			strings.Join(want, "\n"))
	}
	if want := slices.Sorted(maps.Values(pairs)); !slices.Equal(copied, want) {
		t.Errorf("the port has the tests\n%s\nand the table of counterparts\n%s", strings.Join(copied, "\n"),
			strings.Join(want, "\n"))
	}
	if counts[here].Lines*4 > counts[there].Lines {
		t.Errorf("%d lines of the port wait, and %d of the original", counts[here].Lines, counts[there].Lines)
	}
}

// buildTests builds the tests of a folder.
func buildTests(t *testing.T, module, folder string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "suite.test")
	build := exec.Command("go", "test", "-c", "-o", program, "./"+folder)
	build.Dir = module
	began := time.Now()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", folder, err, out)
	}
	t.Logf("%s was built in %s", folder, time.Since(began).Round(100*time.Millisecond))
	return program
}

// leaves are the tests without those that only consist of others, sorted.
func (o *outcome) leaves() []string {
	names := slices.Sorted(maps.Keys(o.states))
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}
