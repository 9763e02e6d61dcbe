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
		name, plane string
		flags       []string
	}{
		// Without "*", only the named controllers are enabled.
		{"alone", "", []string{"--controllers=-namespace-controller", "--authorization-mode=Node,RBAC"}},
		{"beside Plinth's own controllers", "", []string{"--authorization-mode=Node,RBAC"}},
		{"in a plane", "tested", []string{"--controllers=-namespace-controller", "--authorization-mode=Node,RBAC"}},
	} {
		if mode.plane != "" && harness.Target() == harness.Reference {
			continue
		}
		t.Run(mode.name, func(t *testing.T) {
			if mode.plane == "" { // that of the plane runs before them: two clusters at a time are enough
				t.Parallel()
			}
			o := harness.Options{Kind: harness.Target(), Plane: mode.plane}
			if o.Kind == harness.Plinth {
				o.Flags = mode.flags
			}
			s := raise(t, harness.Run(t, o))
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
		s.run("admission policies", (*scene).policies)
	})
	s.removed()
	if !s.plane.Runs() {
		s.Errorf("kube-controller-manager or kube-scheduler has ended")
	}
}

// conflict is the class of errors after which a controller tries again. Most controllers do so without logging it; the
// one of ReplicaSets, for example, logs only the conflict of its second attempt.
const conflict = "the object has been modified"

// stale is the class of errors of the controllers for endpoints when they sync a Service again before the event of
// their own last write has arrived. They try again.
const stale = "informer cache is out of date"

// mostByChance is how many conflicts of kinds that are not known from the reference may be chance, in one run, and how
// many stale caches.
const mostByChance = 3

// classes are the errors that controllers log when another client was faster. For which objects varies from run to run.
var classes = []string{
	conflict,
	stale,
	"is not as new as written version",
	"because it is being terminated",
	"unexpected items still remain in namespace",
}

// fleeting matches errors that depend on timing, on both servers: by program, place and text. A Pod is deleted while
// the scheduler binds it, a ReplicaSet while its controller writes its status, an autoscaler while its controller works
// on it, a namespace before a controller sends its last Event about an object there, or the autoscaler runs before a
// Pod has metrics. The same texts at other places do not match.
var fleeting = regexp.MustCompile(
	`^kube-scheduler (framework\.go:1960|schedule_one\.go:(1198|1261)) .*pods \\*"[^"]*" not found` +
		`|^kube-controller-manager replica_set\.go:640 .*replicasets\.apps \\*"[^"]*" not found` +
		`|^kube-controller-manager event\.go:365 "Server rejected event \(will not retry!\)" err="namespaces \\*"[^"]*" not found"` +
		`|^kube-controller-manager horizontal\.go:354 .* was deleted during reconciliation` +
		`|^kube-controller-manager horizontal\.go:(877|944) .*horizontalpodautoscalers\.autoscaling \\*"[^"]*" not found` +
		`|^kube-controller-manager horizontal\.go:354 .*failed to get cpu utilization: .*(no metrics|no pods) returned`)

// names are the parts of messages that differ from run to run.
var names = regexp.MustCompile(`\\\\?"[^"\\\\]*\\\\?"|[a-z]+/[a-z0-9./-]+|[0-9]+`)

// kind returns the text by which errors are compared: the program, the place in its source, and the message.
func kind(e controlplane.Error) string {
	text := classOf(e)
	if text == "" {
		text = names.ReplaceAllString(e.Message, "*")
	}
	return e.Program + " " + e.Place + " " + text
}

// classOf returns the one of classes that an error belongs to, or "".
func classOf(e controlplane.Error) string {
	for _, class := range classes {
		if strings.Contains(e.Message, class) {
			return class
		}
	}
	return ""
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

// compareErrors reports the logged errors of kinds that do not occur with the reference.
func (s *scene) compareErrors() {
	found, err := s.plane.Errors()
	s.must(err)
	for _, e := range unexpected(found, knownErrors(s.T)) {
		s.Errorf("%s logs at %s what it does not on the reference: %s\n%s", e.Program, e.Place, e.Message, kind(e))
	}
}

// unexpected returns the errors that are neither known nor fleeting, one of a kind. A few conflicts and stale caches
// are allowed anywhere: whether two controllers write to an object at once, or one syncs before an event arrives,
// depends on timing alone.
func unexpected(found []controlplane.Error, known map[string]bool) []controlplane.Error {
	known = maps.Clone(known)
	byChance := map[string]int{} // by class
	var left []controlplane.Error
	for _, e := range found {
		if known[kind(e)] || fleeting.MatchString(e.Program+" "+e.Place+" "+e.Message) {
			continue
		}
		if class := classOf(e); class == conflict || class == stale {
			if byChance[class]++; byChance[class] <= mostByChance {
				continue
			}
		}
		known[kind(e)] = true // reported once
		left = append(left, e)
	}
	return left
}

func TestUnexpected(t *testing.T) {
	const manager = "kube-controller-manager"
	of := func(place, message string, n int) []controlplane.Error {
		return slices.Repeat([]controlplane.Error{{Program: manager, Place: place, Message: message}}, n)
	}
	missing := `sync "a/b" failed with replicasets.apps "b" not found`
	modified := `sync "a/b" failed with Operation cannot be fulfilled on replicasets.apps "b": the object has been modified`
	outdated := `"Unhandled Error" err="endpoints informer cache is out of date, resource version 7 already processed"`
	for name, c := range map[string]struct {
		found []controlplane.Error
		want  int
	}{
		"a few stale caches": {of("endpoints_controller.go:345", outdated, mostByChance), 0},
		"many stale caches":  {of("endpoints_controller.go:345", outdated, mostByChance+2), 1},
		"conflicts and stale caches": {append(of("replica_set.go:640", modified, mostByChance),
			of("endpointslice_controller.go:365", outdated, mostByChance)...), 0},
		"a few conflicts":      {of("replica_set.go:640", modified, mostByChance), 0},
		"many conflicts":       {of("replica_set.go:640", modified, mostByChance+2), 1},
		"known conflicts":      {of("disruption.go:656", modified, 100), 0},
		"a deleted ReplicaSet": {of("replica_set.go:640", missing, 100), 0},
		"an Event of a namespace that is gone": {of("event.go:365",
			`"Server rejected event (will not retry!)" err="namespaces \"shop\" not found" event="&Event{because it is being terminated}"`, 2), 0},
		"an autoscaler that is deleted after its target": {of("horizontal.go:877",
			`"Unhandled Error" err="failed to update status for a: horizontalpodautoscalers.autoscaling \"a\" not found"`, 2), 0},
		"an Event that is refused": {of("event.go:365",
			`"Server rejected event (will not retry!)" err="events \"a\" is forbidden" event="&Event{}"`, 2), 1},
		"the same, somewhere else": {of("deployment_controller.go:1", missing, 2), 1},
		"another error":            {of("replica_set.go:640", "replicasets.apps is forbidden", 2), 1},
	} {
		if left := unexpected(c.found, knownErrors(t)); len(left) != c.want {
			t.Errorf("%s: %v, want %d errors", name, left, c.want)
		}
	}
}
