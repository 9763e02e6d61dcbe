package envtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/modules"
	"plinth/conformance/internal/reference"
)

// project is a project whose test suites start an envtest environment.
type project struct {
	name    string
	modules map[string]string // by folder: the module with the sources, with its version unless ours requires it
	suites  map[string]int    // by folder: the number of tests that pass on the reference at least
	differs map[string]string // by folder and test: why it fails here; tests within it may not run at all then
}

// projects are controller-runtime itself, and Cluster API: a project made with kubebuilder, whose environment has
// webhooks that default, validate and convert, called for everything that its suites write.
var projects = []project{
	{"controller-runtime", map[string]string{".": "sigs.k8s.io/controller-runtime"}, map[string]int{
		"pkg/builder":                      60,
		"pkg/cache":                        200,
		"pkg/client":                       300,
		"pkg/client/apiutil":               20,
		"pkg/cluster":                      15,
		"pkg/controller":                   20,
		"pkg/controller/controllerutil":    50,
		"pkg/envtest":                      30,
		"pkg/handler":                      80,
		"pkg/internal/controller":          60,
		"pkg/internal/recorder":            5,
		"pkg/manager":                      60,
		"pkg/manager/internal/integration": 2, // a conversion webhook
		"pkg/metrics/filters":              4,
		"pkg/reconcile":                    10,
		"pkg/source":                       20,
		"pkg/webhook":                      10,
	}, nil},
	{"cluster-api", map[string]string{
		".":   "sigs.k8s.io/cluster-api",
		"api": "sigs.k8s.io/cluster-api/api",
	}, map[string]int{
		"bootstrap/kubeadm/reconcilers/kubeadmconfig":          30,
		"controllers/clustercache":                             15,
		"controllers/crdmigrator":                              2,
		"controlplane/kubeadm/pkg":                             40,
		"controlplane/kubeadm/reconcilers/kubeadmcontrolplane": 50,
		"core/reconcilers/cluster":                             30,
		"core/reconcilers/clusterclass":                        6,
		"core/reconcilers/clusterresourceset":                  8,
		"core/reconcilers/extensionconfig":                     4,
		"core/reconcilers/machine":                             40,
		"core/reconcilers/machinedeployment":                   15,
		"core/reconcilers/machinehealthcheck":                  10,
		"core/reconcilers/machinepool":                         15,
		"core/reconcilers/machineset":                          25,
		"core/reconcilers/topology/cluster":                    30,
		"core/reconcilers/topology/cluster/structuredmerge":    3,
		"core/webhooks/admission/test":                         8,
		"internal/topology/upgrade":                            1,
		"internal/util/ssa/test":                               6,
		"util/controller":                                      15,
		"util/deprecated/v1beta1/patch":                        7,
		"util/patch/test":                                      4,
	}, map[string]string{
		"controllers/crdmigrator TestReconcile":                                                applied,
		"controllers/crdmigrator TestReconcile/run_only_StorageVersionMigration_with_cache":    applied,
		"controllers/crdmigrator TestReconcile/run_only_StorageVersionMigration_without_cache": applied,
		"controllers/crdmigrator TestReconcile/skip_all":                                       disturbed,
	}},
}

// Reasons of failures.
const (
	applied   = "it expects an apply to fail where managedFields name a version that is no longer served"
	disturbed = "the managers of the tests before it, which have failed, still run; alone, it passes"
)

// runner matches the Go test that runs those of ginkgo: it fails if any of them fails.
var runner = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n(?:.*\n)??\tRegisterFailHandler`)

// random matches the seed in a test's name.
var random = regexp.MustCompile(`random\(\d+\)(#\d+)?`)

// outcome holds the results of the tests of one suite.
type outcome struct {
	states map[string]string // by name: "passed", "failed", "skipped", …
	whys   map[string]string // of those that failed
	took   time.Duration
	cpu    time.Duration // of the suite and of the servers that it has started and stopped
}

func (o *outcome) count(state string) (n int) {
	for _, s := range o.states {
		if s == state {
			n++
		}
	}
	return n
}

// Suites of other projects that run on envtest pass here where they pass on the reference. They are built from the
// module's source, unchanged, once. ENVTEST_SUITES=1 runs all of them; its value may also be the beginnings of the
// names of some, separated by commas: cluster-api,controller-runtime/pkg/webhook.
//
// SPEC: RUN-2, AUTH-3
func TestSuites(t *testing.T) {
	theirs := ""
	everySuite(t, func(t *testing.T, p *project, source, suite string) {
		if theirs == "" {
			var err error
			if theirs, err = reference.Build(os.Stderr); err != nil {
				t.Fatal(err)
			}
		}
		p.compare(t, source, suite, theirs)
	})
}

// everySuite runs a test for each suite that is asked for, with the copy of its project's source.
func everySuite(t *testing.T, test func(t *testing.T, p *project, source, suite string)) {
	asked := os.Getenv("ENVTEST_SUITES")
	if asked == "" {
		t.Skip("ENVTEST_SUITES is not set")
	}
	for _, p := range projects {
		source := ""
		for _, suite := range slices.Sorted(maps.Keys(p.suites)) {
			name := p.name + "/" + suite
			wanted := func(beginning string) bool { return strings.HasPrefix(name+"/", beginning) }
			if asked != "1" && !slices.ContainsFunc(strings.Split(asked, ","), wanted) {
				continue
			}
			if source == "" {
				source = filepath.Join(t.TempDir(), p.name)
				if err := modules.Copy(source, p.modules); err != nil {
					t.Fatal(err)
				}
			}
			t.Run(name, func(t *testing.T) { test(t, &p, source, suite) })
		}
	}
}

// compare runs one suite on both servers.
func (p *project) compare(t *testing.T, source, suite, theirs string) {
	program := buildTests(t, source, suite)
	there := run(t, program, filepath.Join(source, suite), "KUBEBUILDER_ASSETS="+theirs)
	here := run(t, program, filepath.Join(source, suite), "KUBEBUILDER_ASSETS="+assets(t))
	t.Logf("%s/%s: the reference passes %d tests in %s, Plinth %d in %s", p.name, suite,
		there.count("passed"), there.took.Round(100*time.Millisecond), here.count("passed"),
		here.took.Round(100*time.Millisecond))
	if least := p.suites[suite]; there.count("passed") < least {
		t.Fatalf("only %d of %d tests pass on the reference:\n%v", there.count("passed"), least, there.whys)
	}
	differs := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(there.states)) {
		if there.states[name] != "passed" || here.states[name] == "passed" {
			continue
		}
		outer, _, _ := strings.Cut(name, "/")
		switch {
		case p.differs[suite+" "+name] != "":
			differs[suite+" "+name] = true
		case here.states[name] == "" && p.differs[suite+" "+outer] != "":
		default:
			t.Errorf("%s: %q here\n%s", name, here.states[name], here.whys[name])
		}
	}
	for test := range p.differs {
		if strings.HasPrefix(test, suite+" ") && !differs[test] {
			t.Errorf("%s passes now", test)
		}
	}
}

// suiteTimeout is much longer than a suite takes.
const suiteTimeout = "20m"

// run runs a suite with further variables of the environment.
func run(t *testing.T, program, dir string, variables ...string) *outcome {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	inGinkgo, err := runners(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.timeout=" + suiteTimeout}
	if len(inGinkgo) > 0 {
		args = append(args, "-ginkgo.json-report="+report, "-ginkgo.seed=1")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variables...)
	began := time.Now()
	text, _ := cmd.CombinedOutput() // the report says what failed
	o := &outcome{states: map[string]string{}, whys: map[string]string{}, took: time.Since(began),
		cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	o.plain(string(text))
	for _, test := range inGinkgo {
		delete(o.states, test)
	}
	if len(inGinkgo) > 0 {
		err = o.ginkgo(report)
	}
	if err != nil || len(o.states) == 0 {
		t.Errorf("%s has left no report: %v\n%s", filepath.Base(dir), err, text[max(0, len(text)-4000):])
	}
	return o
}

// runners returns the names of the Go tests in a folder that run those of ginkgo.
func runners(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_suite_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range runner.FindAllStringSubmatch(string(code), -1) {
			names = append(names, m[1])
		}
	}
	return names, nil
}

// plain reads the results of plain Go tests from the output of -test.v.
func (o *outcome) plain(text string) {
	states := map[string]string{"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
	for line := range strings.Lines(text) {
		result, rest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		state := states[strings.TrimPrefix(result, "--- ")]
		name, _, _ := strings.Cut(rest, " (")
		name = random.ReplaceAllString(name, "random")
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
