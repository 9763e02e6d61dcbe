package builtin

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"testing"

	"plinth/internal/engine"
)

// fact is one entry of testdata/builtin-resources-1.37.json: a resource type in the discovery documents of
// kube-apiserver 1.37.
type fact struct {
	Group, Version, Resource, Kind string
	Namespaced                     bool
	Singular                       string
	ShortNames, Categories, Verbs  []string
	Subresources                   []subfact
}

type subfact struct {
	Name, Kind, Group, Version string
	Verbs                      []string
}

func facts(t *testing.T) []fact {
	t.Helper()
	data, err := os.ReadFile("testdata/builtin-resources-1.37.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []fact
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// factOf describes one of our types as the reference's discovery does.
func factOf(r *engine.Resource) fact {
	f := fact{
		Group: r.Group, Version: r.Version, Resource: r.Name, Kind: r.Kind, Namespaced: r.Namespaced,
		Singular:   r.Singular,
		ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
	}
	for _, s := range r.Subresources {
		sub := subfact{Name: s.Name, Kind: s.Kind, Verbs: s.Verbs}
		if s.Group != r.Group || s.Version != r.Version {
			sub.Group, sub.Version = s.Group, s.Version
		}
		f.Subresources = append(f.Subresources, sub)
	}
	return f
}

// SPEC: URI-1, URI-7, URI-8
func TestTableIsTheReferences(t *testing.T) {
	ours := map[string]string{}
	for _, r := range Resources(Config{}) {
		ours[r.Group+"/"+r.Version+"/"+r.Name] = fmt.Sprint(factOf(r))
	}
	served := 0
	for _, f := range facts(t) {
		served++
		key := f.Group + "/" + f.Version + "/" + f.Resource
		if want := fmt.Sprint(f); ours[key] != want {
			t.Errorf("%s\n have %s\n want %s", key, ours[key], want)
		}
		delete(ours, key)
	}
	for key := range ours {
		t.Errorf("%s is not among the reference's", key)
	}
	if served != 72 {
		t.Errorf("%d types are served, 72 should be", served)
	}
}

// SPEC: URI-4, WRITE-1
func TestCreateOnUpdateAndUnconditionalUpdate(t *testing.T) {
	var creates, conditional []string
	for _, r := range Resources(Config{}) {
		if r.CreateOnUpdate {
			creates = append(creates, r.Name)
		}
		if !r.UnconditionalUpdate && r.Has("update") {
			conditional = append(conditional, r.Name)
		}
	}
	sort.Strings(creates)
	sort.Strings(conditional)
	wantCreates := []string{
		"clusterrolebindings", "clusterroles", "endpoints", "events", "events", "leases", "limitranges", "rolebindings",
		"roles",
		"runtimeclasses", "services",
	}
	if !slices.Equal(creates, wantCreates) {
		t.Errorf("created by PUT: %v, want %v", creates, wantCreates)
	}
	wantConditional := []string{
		"apiservices", "clustertrustbundles", "csidrivers", "csinodes", "csistoragecapacities", "customresourcedefinitions",
		"devicetaintrules", "leases",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"podcertificaterequests", "poddisruptionbudgets", "runtimeclasses", "storageversionmigrations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		"volumeattachments",
	}
	if !slices.Equal(conditional, wantConditional) {
		t.Errorf("updated only with a version: %v, want %v", conditional, wantConditional)
	}
}

// Every kind has a resource in the store, which the versions of a kind share: one of them is the stored version.
func TestStoreKeys(t *testing.T) {
	stored := map[string][]string{}
	for _, r := range Resources(Config{}) {
		if !r.Virtual() {
			stored[r.Stored.Path] = append(stored[r.Stored.Path], r.APIVersion())
			if several := len(r.Stored.Versions) > 1; several != (r.Stored.Convert != nil) ||
				r.Stored.Version(r.APIVersion()) != r.Served {
				t.Errorf("%s has %d versions, and converts: %v", r.APIVersion()+" "+r.Name, len(r.Stored.Versions),
					!several)
			}
		}
	}
	for key, versions := range stored {
		switch key {
		case "/events":
			if !slices.Equal(versions, []string{"v1", "events.k8s.io/v1"}) {
				t.Errorf("%s holds %v", key, versions)
			}
		case "autoscaling/horizontalpodautoscalers":
			if !slices.Equal(versions, []string{"autoscaling/v2", "autoscaling/v1"}) {
				t.Errorf("%s holds %v", key, versions)
			}
		default:
			if len(versions) != 1 {
				t.Errorf("%s holds %v", key, versions)
			}
		}
	}
}

func BenchmarkResources(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		Resources(Config{})
	}
}

// Secrets alone keep their values out of error messages.
//
// SPEC: BEY-2
func TestWhatIsConfidential(t *testing.T) {
	var found []string
	for _, r := range Resources(Config{}) {
		if r.Confidential {
			found = append(found, r.APIVersion()+" "+r.Name)
		}
	}
	if !slices.Equal(found, []string{"v1 secrets"}) {
		t.Errorf("confidential are %q", found)
	}
}

// The status of these types has no Tables in the reference.
//
// SPEC: MED-6
func TestStatusWithoutTables(t *testing.T) {
	var found []string
	for _, r := range Resources(Config{}) {
		if s := r.Subresource("status"); s != nil && !s.Tables {
			found = append(found, r.Group+"/"+r.Name)
		}
	}
	if want := []string{"apiregistration.k8s.io/apiservices", "resource.k8s.io/devicetaintrules",
		"resource.k8s.io/resourceclaims"}; !slices.Equal(found, want) {
		t.Errorf("without Tables are %q", found)
	}
}
