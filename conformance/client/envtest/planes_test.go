package envtest

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// ownServer is how many tests of a suite need a server that envtest has started.
var ownServer = map[string]int{"pkg/manager/internal/integration": 1}

// The suites of TestSuites pass in a plane where they pass on a server of their own. Both are clusters that exist for
// envtest (USE_EXISTING_CLUSTER), with the same flags: what a test needs of an API server that envtest starts itself
// fails on both. ENVTEST_SUITES chooses the suites.
//
// SPEC: BEY-9
func TestSuitesInPlane(t *testing.T) {
	everySuite(t, func(t *testing.T, p *project, source, suite string) {
		program := buildTests(t, source, suite)
		on := func(plane string) *outcome {
			server := harness.Run(t, harness.Options{Kind: harness.Plinth, Plane: plane,
				Flags: []string{"--controllers=-namespace-controller"}}) // none, as with envtest
			return run(t, program, filepath.Join(source, suite), "USE_EXISTING_CLUSTER=true",
				"KUBECONFIG="+server.Kubeconfig, "KUBEBUILDER_ASSETS="+assets(t))
		}
		alone, plane := on(""), on("tested")
		t.Logf("%s/%s: %d tests pass on a server in %s, and %d in a plane in %s", p.name, suite, alone.count("passed"),
			alone.took.Round(100*time.Millisecond), plane.count("passed"), plane.took.Round(100*time.Millisecond))
		if least := p.suites[suite] - ownServer[suite]; alone.count("passed") < least {
			t.Fatalf("only %d of %d tests pass on a server:\n%v", alone.count("passed"), least, alone.whys)
		}
		for _, name := range slices.Sorted(maps.Keys(alone.states)) {
			if alone.states[name] == "passed" && plane.states[name] != "passed" {
				t.Errorf("%s: %q in a plane\n%s", name, plane.states[name], plane.whys[name])
			}
		}
	})
}
