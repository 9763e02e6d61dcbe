package envtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/reference"
)

// suites are controller-runtime's test suites that start an envtest environment.
var suites = []string{"pkg/client", "pkg/cache", "pkg/builder", "pkg/controller", "pkg/manager"}

// runner matches the Go test that runs those of ginkgo: it fails if any of them fails.
var runner = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n(?:.*\n)??\tRegisterFailHandler`)

// outcome holds the results of the tests of one suite.
type outcome struct {
	states map[string]string // by name: "passed", "failed", "skipped", …
	whys   map[string]string // of those that failed
	took   time.Duration
}

func (o *outcome) count(state string) (n int) {
	for _, s := range o.states {
		if s == state {
			n++
		}
	}
	return n
}

// controller-runtime's own suites that run on envtest pass here where they pass on the reference. They are built from
// the module's source, unchanged, once; CONTROLLER_RUNTIME=1 runs them; its value may also name suites, separated by
// commas.
//
// SPEC: RUN-2
func TestSuites(t *testing.T) {
	asked := os.Getenv("CONTROLLER_RUNTIME")
	if asked == "" {
		t.Skip("CONTROLLER_RUNTIME is not set")
	}
	wanted := suites
	if asked != "1" {
		wanted = strings.Split(asked, ",")
	}
	theirs, err := reference.Build(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	source := copyOf(t, "sigs.k8s.io/controller-runtime")
	for _, suite := range wanted {
		t.Run(filepath.Base(suite), func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "suite.test")
			build := exec.Command("go", "test", "-c", "-o", program, "./"+suite)
			build.Dir = source
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("building it: %v\n%s", err, out)
			}
			there := run(t, program, filepath.Join(source, suite), theirs)
			here := run(t, program, filepath.Join(source, suite), assets(t))
			t.Logf("%s: the reference passes %d tests in %s, Plinth %d in %s", suite,
				there.count("passed"), there.took.Round(100*time.Millisecond), here.count("passed"),
				here.took.Round(100*time.Millisecond))
			if there.count("passed") < 5 {
				t.Fatalf("only %d tests pass on the reference:\n%v", there.count("passed"), there.whys)
			}
			for _, name := range slices.Sorted(maps.Keys(there.states)) {
				if there.states[name] == "passed" && here.states[name] != "passed" {
					t.Errorf("%s: %s here\n%s", name, here.states[name], here.whys[name])
				}
			}
		})
	}
}

// copyOf returns a writable copy of a module's source.
func copyOf(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	from, to := strings.TrimSpace(string(out)), filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// suiteTimeout is much longer than a suite takes.
const suiteTimeout = "20m"

// run runs a suite with the programs of a directory.
func run(t *testing.T, program, dir, assets string) *outcome {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.Command(program, "-test.v", "-test.timeout="+suiteTimeout, "-ginkgo.json-report="+report, "-ginkgo.seed=1")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	began := time.Now()
	text, _ := cmd.CombinedOutput() // the report says what failed
	o := &outcome{states: map[string]string{}, whys: map[string]string{}, took: time.Since(began)}
	o.plain(string(text))
	files, _ := filepath.Glob(filepath.Join(dir, "*_suite_test.go"))
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range runner.FindAllStringSubmatch(string(code), -1) {
			delete(o.states, m[1])
		}
	}
	if err := o.ginkgo(report); err != nil {
		t.Errorf("%s has left no report: %v\n%s", filepath.Base(dir), err, text[max(0, len(text)-4000):])
	}
	return o
}

// plain reads the results of plain Go tests from the output of -test.v.
func (o *outcome) plain(text string) {
	states := map[string]string{"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
	for line := range strings.Lines(text) {
		result, rest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		state := states[strings.TrimPrefix(result, "--- ")]
		name, _, _ := strings.Cut(rest, " (")
		if ok && strings.HasPrefix(result, "--- ") && state != "" {
			o.states[name] = state
		}
	}
}

// ginkgo reads a report. After a failure before the suite began, none of its tests has passed.
func (o *outcome) ginkgo(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct {
				Message  string
				Location struct {
					FileName   string
					LineNumber int
				}
			}
		}
	}
	if err := json.Unmarshal(text, &reports); err != nil {
		return err
	}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if name = strings.TrimSpace(name); name == "" {
				name = spec.LeafNodeType
			}
			for i := 2; o.states[name] != ""; i++ { // rows of a table may share a text
				name = fmt.Sprintf("%s #%d", strings.TrimSuffix(name, fmt.Sprintf(" #%d", i-1)), i)
			}
			o.states[name] = spec.State
			if spec.Failure.Message != "" {
				at := spec.Failure.Location
				o.whys[name] = fmt.Sprintf("%s:%d: %s", filepath.Base(at.FileName), at.LineNumber, spec.Failure.Message)
			}
		}
	}
	return nil
}
