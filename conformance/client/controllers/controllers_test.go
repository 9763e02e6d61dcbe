package controllers

import (
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/records"
)

var (
	rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")
	only    = flag.String("only", "", "run the scenarios of this file alone")
)

func TestMain(m *testing.M) { harness.Main(m) }

// flags of both servers: kinds of objects that are not served by default.
var flags = []string{
	"--feature-gates=StorageVersionAPI=true,GenericWorkload=true",
	"--runtime-config=internal.apiserver.k8s.io/v1alpha1=true,scheduling.k8s.io/v1beta1=true",
}

// compared are the controllers whose work is compared.
var compared = []string{
	"namespace-controller", "garbage-collector-controller", "service-cidr-controller",
	"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
	"volumeattributesclass-protection-controller", "podgroup-protection-controller",
	"storage-version-migrator-controller", "storageversion-garbage-collector-controller",
	"kube-apiserver-serving-clustertrustbundle-publisher-controller",
}

const (
	// quietReference: the reference's controllers wait five seconds before they empty a namespace, eight between two
	// attempts at one with objects that finalizers hold, and ten before they let go of a ServiceCIDR.
	quietReference = 16 * time.Second
	quietHere      = 2 * time.Second
	// patience is how long a look waits for what is wanted.
	patience = 30 * time.Second
)

func here(t *testing.T) *runner {
	t.Helper()
	options := harness.Options{Kind: harness.Plinth,
		Flags: append([]string{"--controllers=" + strings.Join(compared, ",")}, flags...)}
	return newRunner(harness.Run(t, options), quietHere)
}

func onReference(t *testing.T) *runner {
	t.Helper()
	server := harness.Run(t, harness.Options{Kind: harness.Reference, Flags: flags})
	controlplane.Run(t, server, controlplane.Options{NoScheduler: true, Manager: []string{
		"--controllers=" + strings.Join(compared, ","), "--leader-elect=false",
		"--feature-gates=StorageVersionAPI=true,GenericWorkload=true",
	}})
	r := newRunner(server, quietReference)
	if _, err := r.run(t.Context(), warmUp, warmUp.want, 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	return r
}

// warmUp is done when the controllers have begun to work.
var warmUp = &scenario{title: "warm up", steps: []step{
	{verb: "POST", path: "/api/v1/namespaces", body: "metadata: {name: warm}"},
	{verb: "POST", path: "/api/v1/namespaces/warm/configmaps", body: `metadata:
  name: dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: none, uid: 00000000-0000-4000-8000-000000000001}]`},
	{verb: "see", path: "/api/v1/namespaces/warm/configmaps/dependent"},
	{verb: "DELETE", path: "/api/v1/namespaces/warm"},
	{verb: "see", path: "/api/v1/namespaces/warm"},
}, want: lookMark + "see /api/v1/namespaces/warm/configmaps/dependent\n  gone\n" +
	lookMark + "see /api/v1/namespaces/warm\n  gone"}

func testdata(t *testing.T) []*file {
	t.Helper()
	files := records.Load(t, parseFile)
	if *only != "" {
		files = slices.DeleteFunc(files, func(f *file) bool { return records.Name(f.name) != *only })
	}
	return files
}

// Printing a script gives the file, so that recording changes only results.
func TestFiles(t *testing.T) {
	for _, f := range testdata(t) {
		records.Unchanged(t, f.name, f.print())
	}
}

// runAll runs the scenarios of a file at the same time. expect says what each is expected to leave; nil: it is unknown.
func (r *runner) runAll(t *testing.T, f *file, expect func(*scenario) string) []string {
	t.Helper()
	got, errs := make([]string, len(f.scenarios)), make([]error, len(f.scenarios))
	var work sync.WaitGroup
	for i, s := range f.scenarios {
		work.Go(func() {
			want := ""
			if expect != nil {
				want = expect(s)
			}
			got[i], errs[i] = r.run(t.Context(), s, want, patience)
		})
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// Plinth's controllers leave the same as those of kube-controller-manager.
//
// SPEC: DEL-1, DEL-5
func TestRecorded(t *testing.T) {
	if *rewrite {
		return
	}
	r := here(t)
	for _, f := range testdata(t) {
		t.Run(records.Name(f.name), func(t *testing.T) {
			got := r.runAll(t, f, (*scenario).wanted)
			for i, s := range f.scenarios {
				if want := s.wanted(); got[i] != want {
					t.Errorf("%s:%d: %s\n%s\n--- recorded\n+++ here\n%s", f.name, s.line, s.title, s.text,
						linediff.Diff(want, got[i]))
				}
				if s.differs != "" && s.differently == s.want {
					t.Errorf("%s:%d: %s: the known difference no longer occurs: %s", f.name, s.line, s.title, s.differs)
				}
			}
		})
	}
}

// TestRecords compares the records with the reference, or makes them.
func TestRecords(t *testing.T) {
	if !*rewrite && !harness.WantReference() {
		return
	}
	r := onReference(t)
	for _, f := range testdata(t) {
		got := r.runAll(t, f, nil)
		for i, s := range f.scenarios {
			if !*rewrite && got[i] != s.want {
				t.Errorf("%s:%d: %s\n--- recorded\n+++ today\n%s", f.name, s.line, s.title, linediff.Diff(s.want, got[i]))
			}
			s.want = got[i]
		}
		if *rewrite {
			if err := os.WriteFile(f.name, f.print(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
