package outside

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"plinth/conformance/internal/modules"
)

// The suite of JobSet's controller as it is in the module, and what a user of plinthtest/outside writes in place of it.
const (
	jobset      = "sigs.k8s.io/jobset@v0.10.1" // of 2025: client-go 0.34, controller-runtime 0.22
	jobsetSuite = "test/integration/controller"
)

var ported = []struct{ from, to string }{
	{`	"sigs.k8s.io/controller-runtime/pkg/envtest"
`, `	"plinth/plinthtest/outside"
`},
	{`	"path/filepath"
`, `	"os"
`},
	{`	testEnv   *envtest.Environment
`, ``},
	{`	testEnv = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "components", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
`, `	plane := outside.New(GinkgoTB(), outside.CRDs(os.DirFS("../../../config/components/crd/bases")))
`},
	{`	cfg, err = testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	Expect(cfg).NotTo(BeNil())
`, `	cfg = &rest.Config{Host: plane.Host(), Transport: plane.Transport(), QPS: -1}
`},
	{`	err := testEnv.Stop()
	Expect(err).NotTo(HaveOccurred())
`, ``},
}

// specs matches the summary of ginkgo.
var specs = regexp.MustCompile(`Ran (\d+) of \d+ Specs[^\n]*\n[^\n]*?(\d+) Passed[^\n]*?(\d+) Failed`)

// JobSet's own suite passes with the planes of another process in place of envtest: the changes are those of ported,
// and the versions of its libraries stay.
//
// SPEC: BEY-7
func TestJobSet(t *testing.T) {
	if os.Getenv("ENVTEST_SUITES") != "1" {
		t.Skip("ENVTEST_SUITES is not 1")
	}
	dir := filepath.Join(t.TempDir(), "jobset")
	if err := modules.Copy(dir, map[string]string{".": jobset}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, jobsetSuite, "suite_test.go")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	suite := string(text)
	for _, change := range ported {
		if strings.Count(suite, change.from) != 1 {
			t.Fatalf("the suite has not once:\n%s", change.from)
		}
		suite = strings.Replace(suite, change.from, change.to, 1)
	}
	if err := os.WriteFile(name, []byte(suite), 0o600); err != nil {
		t.Fatal(err)
	}
	before := goIn(t, dir, "list", "-m", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime")
	goIn(t, dir, "mod", "edit", "-require=plinth/plinthtest/outside@v0.0.0",
		"-replace=plinth/plinthtest/outside="+module(t))
	out := goIn(t, dir, "test", "-count=1", "-v", "./"+jobsetSuite)
	found := specs.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no summary:\n%s", out)
	}
	t.Log(strings.TrimSpace(found[0]))
	if ran, err := strconv.Atoi(found[1]); err != nil || ran < 54 || found[2] != found[1] || found[3] != "0" {
		t.Errorf("of %s specs %s passed and %s failed (%v)", found[1], found[2], found[3], err)
	}
	after := goIn(t, dir, "list", "-m", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime")
	if before != after {
		t.Errorf("the libraries were\n%s, and are\n%s", before, after)
	}
}
