package cluster

import (
	"errors"
	"flag"
	"io/fs"
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
	known := s.knownErrors()
	found, err := s.plane.Errors()
	s.must(err)
	known.Add(found)
	s.must(known.Write(errorsFile, "kube-controller-manager and kube-scheduler log on the reference"))
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

// errorsFile has the kinds of errors that occur with the reference.
const errorsFile = "testdata/errors.txt"

func (s *scene) knownErrors() controlplane.Kinds {
	s.Helper()
	known, err := controlplane.ReadKinds(errorsFile)
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && *rewrite) {
		s.Fatal(err)
	}
	return known
}

// compareErrors reports the logged errors of kinds that do not occur with the reference.
func (s *scene) compareErrors() {
	found, err := s.plane.Errors()
	s.must(err)
	for _, e := range s.knownErrors().Unexpected(found) {
		s.Errorf("%s logs at %s what it does not on the reference: %s\n%s", e.Program, e.Place, e.Message, e.Kind())
	}
}
