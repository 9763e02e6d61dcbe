package cluster

import (
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
)

var rewrite = flag.Bool("rewrite", false,
	"run the scenario on the reference and add to testdata/errors.txt what is logged there")

func TestMain(m *testing.M) { harness.Main(m) }

// The real controllers and the real scheduler work on Plinth as on the reference, alone and beside Plinth's own
// controllers.
//
// SPEC: AUTH-2, DEL-5, SSA-12
func TestPlinth(t *testing.T) {
	if *rewrite {
		return
	}
	for _, mode := range []struct {
		name  string
		flags []string
	}{
		// Without "*", only the named controllers are enabled.
		{"alone", []string{"--controllers=-namespace-controller", "--authorization-mode=Node,RBAC"}},
		{"beside Plinth's own controllers", []string{"--authorization-mode=Node,RBAC"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			s := raise(t, harness.RunTarget(t, mode.flags...))
			s.scenario()
			s.compareErrors()
		})
	}
}

// TestReference compares the list of known errors with the reference, or adds to it.
func TestReference(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	s := raise(t, harness.Run(t, harness.Options{
		Kind: harness.Reference, Flags: []string{"--authorization-mode=Node,RBAC"},
	}))
	s.scenario()
	if !*rewrite {
		s.compareErrors()
		return
	}
	known := knownErrors(t)
	found, err := s.plane.Errors()
	s.must(err)
	for _, e := range found {
		known[kind(e)] = true
	}
	var text strings.Builder
	text.WriteString(
		"# Kinds of errors that kube-controller-manager and kube-scheduler log on the reference: program, place, what.\n")
	for _, line := range slices.Sorted(maps.Keys(known)) {
		text.WriteString(line + "\n")
	}
	s.must(os.WriteFile("testdata/errors.txt", []byte(text.String()), 0o644))
}

// scenario does everything that users do. Its parts run concurrently in one namespace, which is then deleted.
func (s *scene) scenario() {
	s.defineMetrics()
	s.Run("objects", func(t *testing.T) {
		s := s.in(t)
		s.run("Deployments", (*scene).deployments)
		s.run("nodes", (*scene).nodes)
		s.run("Jobs", (*scene).jobs)
		s.run("CronJobs", (*scene).cronJobs)
		s.run("StatefulSets", (*scene).statefulSets)
		s.run("DaemonSets", (*scene).daemonSets)
		s.run("disruption budgets", (*scene).disruptions)
		s.run("autoscaling", (*scene).autoscale)
		s.run("Helm", (*scene).helm)
	})
	s.removed()
	if !s.plane.Runs() {
		s.Errorf("kube-controller-manager or kube-scheduler has ended")
	}
}

// classes are the errors that controllers log when another client was faster. For which objects varies from run to run.
var classes = []string{
	"the object has been modified",
	"is not as new as written version",
	"because it is being terminated",
	"unexpected items still remain in namespace",
}

// fleeting matches errors that depend on timing, on both servers: by program, place and text. A Pod is deleted while
// the scheduler binds it, a ReplicaSet is deleted, or changed twice, while its controller writes its status, an
// autoscaler is deleted while its controller works on it, or works before a Pod has metrics. The same texts at other
// places do not match.
//
// The controller of ReplicaSets writes a status again after a conflict, on top of what it has read then: only a second
// change by the controller of Deployments, between that read and that write, makes it log the conflict.
var fleeting = regexp.MustCompile(
	`^kube-scheduler (framework\.go:1960|schedule_one\.go:(1198|1261)) .*pods \\*"[^"]*" not found` +
		`|^kube-controller-manager replica_set\.go:640 .*replicasets\.apps \\*"[^"]*\\*"(?: not found|: the object has been modified)` +
		`|^kube-controller-manager horizontal\.go:354 .* was deleted during reconciliation` +
		`|^kube-controller-manager horizontal\.go:944 .*horizontalpodautoscalers\.autoscaling \\*"[^"]*" not found` +
		`|^kube-controller-manager horizontal\.go:354 .*failed to get cpu utilization: .*(no metrics|no pods) returned`)

// names are the parts of messages that differ from run to run.
var names = regexp.MustCompile(`\\\\?"[^"\\\\]*\\\\?"|[a-z]+/[a-z0-9./-]+|[0-9]+`)

// kind returns the text by which errors are compared: the program, the place in its source, and the message.
func kind(e controlplane.Error) string {
	for _, class := range classes {
		if strings.Contains(e.Message, class) {
			return e.Program + " " + e.Place + " " + class
		}
	}
	return e.Program + " " + e.Place + " " + names.ReplaceAllString(e.Message, "*")
}

// knownErrors returns the kinds of errors that occur with the reference.
func knownErrors(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	text, err := os.ReadFile("testdata/errors.txt")
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && *rewrite) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			known[strings.TrimSuffix(line, "\n")] = true
		}
	}
	return known
}

// mostConflicts is how many conflicts of ReplicaSets may be chance: a second conflict in a row is rare.
const mostConflicts = 3

// compareErrors reports the logged errors of kinds that do not occur with the reference.
func (s *scene) compareErrors() {
	known := knownErrors(s.T)
	found, err := s.plane.Errors()
	s.must(err)
	conflicts := 0
	for _, e := range found {
		if strings.HasSuffix(kind(e), "replica_set.go:640 the object has been modified") {
			if conflicts++; conflicts == mostConflicts+1 {
				s.Errorf("%s logs more than %d times: %s", e.Program, mostConflicts, e.Message)
			}
		}
		if !known[kind(e)] && !fleeting.MatchString(e.Program+" "+e.Place+" "+e.Message) {
			known[kind(e)] = true // reported once
			s.Errorf("%s logs at %s what it does not on the reference: %s\n%s", e.Program, e.Place, e.Message, kind(e))
		}
	}
}
