package builtin

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"plinth/internal/features"
	"plinth/object"
)

// unlistedVersions are versions of the kinds below that no row has: their Go types know no release, and no server
// installs them.
var unlistedVersions = []string{
	"certificates.k8s.io/v1alpha1 ClusterTrustBundle",
	"node.k8s.io/v1alpha1 RuntimeClass",
	"rbac.authorization.k8s.io/v1alpha1 ClusterRole", "rbac.authorization.k8s.io/v1alpha1 ClusterRoleBinding",
	"rbac.authorization.k8s.io/v1alpha1 Role", "rbac.authorization.k8s.io/v1alpha1 RoleBinding",
	"storage.k8s.io/v1alpha1 VolumeAttributesClass",
}

// emulated are the releases that can be emulated.
func emulated() (all []features.Release) {
	for r := features.Oldest; !r.After(current); r.Minor++ {
		all = append(all, r)
	}
	return all
}

// A row has every version of its kind that a release can serve, in the order of their priority, and no other. What
// it can serve is decided here by the Go types that the scheme of client-go knows.
//
// SPEC: RUN-4
func TestRowsHaveAllVersions(t *testing.T) {
	checked, left := 0, slices.Clone(unlistedVersions)
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			k := &g.kinds[i]
			if g.name == "apiextensions.k8s.io" || g.name == "apiregistration.k8s.io" { // types in modules of their own
				continue
			}
			var want []string
			for _, gv := range scheme.Scheme.PrioritizedVersionsForGroup(g.name) {
				made, err := scheme.Scheme.New(gv.WithKind(k.kind))
				if err != nil {
					continue
				}
				v := version{name: gv.Version, lifecycle: made}
				removed := v.removed()
				if v.introduced().After(current) || removed != (features.Release{}) && !removed.After(features.Oldest) {
					continue
				}
				if name := gv.String() + " " + k.kind; slices.Contains(left, name) {
					left = slices.DeleteFunc(left, func(other string) bool { return other == name })
					continue
				}
				want = append(want, gv.Version)
			}
			var have []string
			for j := range k.versions {
				v := &k.versions[j]
				have = append(have, v.name)
				if !slices.ContainsFunc(emulated(), func(r features.Release) bool { there, _ := v.there(r); return there }) {
					t.Errorf("%s: %s is not there", k.name, v.name)
				}
				checked++
			}
			slices.SortFunc(want, func(a, b string) int {
				return slices.Index(priorities, a) - slices.Index(priorities, b)
			})
			if !slices.Equal(have, want) {
				t.Errorf("%s %s has the versions %q, not %q", g.name, k.kind, have, want)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("no version of this release is %q", left)
	}
	if checked < 75 {
		t.Errorf("only %d versions were looked at", checked)
	}
}

// The version in which each kind is stored is that in which the reference was seen to store it.
//
// SPEC: RUN-4
func TestStoredVersionsAreTheReferences(t *testing.T) {
	text, err := os.ReadFile("testdata/stored-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, apiVersion, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(name, "#") {
			want[name] = apiVersion
		}
	}
	if len(want) < 70 {
		t.Fatalf("%d resources are recorded", len(want))
	}
	left := maps.Clone(want)
	for _, r := range Resources(Config{}.Every()) {
		if r.Virtual() || !r.Has("create") {
			continue
		}
		name := strings.TrimPrefix(r.Group+"/"+r.Name, "/")
		have := r.Stored.Storage.APIVersion
		if r.Stored.ReferenceStorage != "" {
			have = r.Group + "/" + r.Stored.ReferenceStorage
		}
		if have != want[name] {
			t.Errorf("%s is stored as %s, there as %s", name, have, want[name])
		}
		delete(left, name)
	}
	if len(left) > 0 {
		t.Errorf("not served are %q", slices.Sorted(maps.Keys(left)))
	}
}

// The comments in the sources of each version were read: without them its schema has no defaults and no keys of lists.
func TestVersionsHaveFacts(t *testing.T) {
	facts, err := os.ReadFile("../gotypes/facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	eachKind(func(name string, k *kind) {
		checked++
		path := reflect.TypeOf(k.version.lifecycle).Elem().PkgPath()
		if !strings.Contains(string(facts), "\npackage "+path+"\n") {
			t.Errorf("%s: command facts does not read %s", name, path)
		}
	})
	if checked < 75 {
		t.Errorf("only %d versions were looked at", checked)
	}
}

// row finds a row.
func row(t *testing.T, group, name string) *kind {
	t.Helper()
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			if g.name == group && g.kinds[i].name == name {
				return &g.kinds[i]
			}
		}
	}
	t.Fatalf("there is no row %s/%s", group, name)
	return nil
}

// The storage version: none that the compatible release does not know, and an alpha one only if there is no other.
//
// SPEC: RUN-4
func TestStorageRule(t *testing.T) {
	since := func(name string, minor int) version { return version{name: name, lifecycle: introducedIn(minor)} }
	for _, c := range []struct {
		versions []version
		want     string
	}{
		{[]version{since("v1", 36), since("v1beta1", 30)}, "v1"},
		{[]version{since("v1", 37), since("v1beta1", 30)}, "v1beta1"},
		{[]version{since("v1", 37), since("v1beta2", 37), since("v1beta1", 36)}, "v1beta1"},
		{[]version{since("v1", 37), since("v1alpha1", 30)}, "v1"},
		{[]version{since("v1beta1", 38), since("v1alpha3", 37), since("v1alpha2", 36)}, "v1alpha3"},
		{[]version{{name: "v2"}, {name: "v1"}}, "v2"},
	} {
		k := kind{versions: c.versions}
		if got := k.versions[k.storage(features.Current)].name; got != c.want {
			t.Errorf("%v are stored as %s, not %s", c.versions, got, c.want)
		}
	}
}

type introducedIn int

func (minor introducedIn) APILifecycleIntroduced() (int, int) { return 1, int(minor) }

// A version that is off makes no resource, and its schema is not compiled. A gate that is off hides all versions.
//
// SPEC: RUN-4
func TestVersionsAreOff(t *testing.T) {
	served := func(c Config) (all []string) {
		for _, r := range Resources(c) {
			if r.Name == "clustertrustbundles" {
				all = append(all, r.Version)
			}
		}
		return all
	}
	if got := served(Config{}); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("by default: %q", got)
	}
	asked := map[string]bool{}
	every := Config{Serves: func(group, version, resource string, byDefault bool) bool {
		asked[group+"/"+version+"/"+resource] = byDefault
		return true
	}}
	if got := served(every); !slices.Equal(got, []string{"v1", "v1beta1"}) {
		t.Errorf("with all on: %q", got)
	}
	if on, ok := asked["certificates.k8s.io/v1beta1/clustertrustbundles"]; on || !ok {
		t.Errorf("v1beta1 is on by default: %v, %v", on, ok)
	}
	clear(asked)
	every.Features = every.Features.With(features.ClusterTrustBundle, false)
	if got := served(every); len(got) > 0 || len(asked) == 0 {
		t.Errorf("without the gate: %q", got)
	}
	for name := range asked {
		if strings.HasSuffix(name, "/clustertrustbundles") {
			t.Errorf("%s was asked about, which its gate hides", name)
		}
	}
}

// Requests in a version that is not stable get the reference's warning.
//
// SPEC: RUN-4
func TestBetaVersionsWarn(t *testing.T) {
	all := Resources(Config{Serves: func(_, _, _ string, _ bool) bool { return true }})
	for apiVersion, want := range map[string]string{
		"certificates.k8s.io/v1beta1 clustertrustbundles": "certificates.k8s.io/v1beta1 ClusterTrustBundle is " +
			"deprecated in v1.37+, unavailable in v1.40+; use certificates.k8s.io/v1 ClusterTrustBundle",
		"resource.k8s.io/v1beta2 devicetaintrules":   "", // from 1.39 on
		"certificates.k8s.io/v1 clustertrustbundles": "",
	} {
		found := false
		for _, r := range all {
			if r.APIVersion()+" "+r.Name == apiVersion {
				if found = true; r.Deprecated != want {
					t.Errorf("%s: %q, want %q", apiVersion, r.Deprecated, want)
				}
			}
		}
		if !found {
			t.Errorf("%s is not served", apiVersion)
		}
	}
}

// The selectable fields of a row have the same values in each of its versions, as store relies on for those that change
// nothing of the row (engine.Version.SelectsAs).
func TestVersionsSelectAlike(t *testing.T) {
	k := row(t, "certificates.k8s.io", "podcertificaterequests")
	obj := object.Fields("apiVersion", object.StringOf("certificates.k8s.io/v1"), "spec", object.Fields(
		"nodeName", object.StringOf("n"), "podName", object.StringOf("p"), "signerName", object.StringOf("x/y")))
	other, err := k.versions[1].fromHub(obj)
	if err != nil {
		t.Fatal(err)
	}
	if one, two := selected(k.fields, obj), selected(k.fields, other); !slices.Equal(one, two) || len(one) != 3 {
		t.Errorf("%v and %v", one, two)
	}
}

// priorities are the names of versions, the highest first.
var priorities = []string{"v2", "v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}

// v1 of DeviceTaintRules differs from v1beta2 in what a PUT must say and in what a delete answers.
//
// SPEC: RUN-4, WRITE-1, DEL-1
func TestDeviceTaintRulesDiffer(t *testing.T) {
	found := 0
	for _, r := range Resources(Config{Serves: func(_, _, _ string, _ bool) bool { return true }}) {
		if r.Name != "devicetaintrules" {
			continue
		}
		found++
		if old := r.Version != "v1"; r.UnconditionalUpdate != old || r.DeleteReturnsObject != old {
			t.Errorf("%s: unconditional update %v, delete returns the object %v", r.Version, r.UnconditionalUpdate,
				r.DeleteReturnsObject)
		}
	}
	if found < 2 {
		t.Errorf("%d versions", found)
	}
}
