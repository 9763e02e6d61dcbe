package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	"plinth/conformance/internal/harness"
)

// A server that emulates another release serves what the reference serves with the same flags, with the same hashes of
// the stored versions; its OpenAPI documents have the same paths.
//
// SPEC: RUN-4
func TestEmulatedReleases(t *testing.T) {
	if !harness.WantReference() {
		return
	}
	for _, flags := range [][]string{
		{"--emulated-version=1.36"},
		{"--emulated-version=kube=1.36", "--min-compatibility-version=1.36"},
		{"--emulated-version=1.35", "--emulation-forward-compatible", "--runtime-config=api/beta=true"},
		{"--emulated-version=1.36", "--runtime-config-emulation-forward-compatible",
			"--runtime-config=resource.k8s.io/v1=true"},
		{"--min-compatibility-version=1.34"},
		{"--min-compatibility-version=kube=1.37", "--feature-gates=StorageVersionHash=false"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			have := served(t, harness.Options{Kind: harness.Plinth, Flags: flags})
			want := served(t, harness.Options{Kind: harness.Reference, Flags: flags})
			if len(want) < 400 {
				t.Fatalf("the reference serves only %d paths and types", len(want))
			}
			for _, line := range slices.Sorted(maps.Keys(want)) {
				if !have[line] {
					t.Errorf("only the reference has %s", line)
				}
			}
			for _, line := range slices.Sorted(maps.Keys(have)) {
				if !want[line] {
					t.Errorf("the reference has no %s", line)
				}
			}
		})
	}
}

// served are the types and the paths that a server's documents list.
func served(t *testing.T, o harness.Options) map[string]bool {
	t.Helper()
	config, err := harness.Run(t, o).Config()
	if err != nil {
		t.Fatal(err)
	}
	c := discovery.NewDiscoveryClientForConfigOrDie(config)
	all := map[string]bool{}
	groups, err := c.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for i := range groups.Groups {
		for _, v := range groups.Groups[i].Versions {
			list, err := c.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			for j := range list.APIResources {
				all[fmt.Sprintf("%s %+v", v.GroupVersion, list.APIResources[j])] = true
			}
		}
	}
	document, err := c.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range document.Paths.Path {
		if !strings.HasPrefix(path.Name, "/openid/") && !strings.HasPrefix(path.Name, "/.well-known/") {
			all[path.Name] = true
		}
	}
	version, err := c.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	all["emulates "+version.EmulationMajor+"."+version.EmulationMinor] = true
	all["compatible with "+version.MinCompatibilityMajor+"."+version.MinCompatibilityMinor] = true
	return all
}
