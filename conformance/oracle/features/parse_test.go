package features

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"

	"plinth/internal/features"
)

// differs are the gates whose default differs here; package features gives the reasons.
var differs = []featuregate.Feature{"CBORServingAndStorage"}

// The same text is refused with the same message or turns the same gates on.
//
// SPEC: RUN-1
func TestParseIsThatOfTheReference(t *testing.T) {
	klog.SetLogger(logr.Discard())
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range registry(t).GetAll() {
			if !yield(string(name)) {
				return
			}
		}
	})
	random := rand.New(rand.NewPCG(1, 2))
	accepted, refused := 0, map[string]int{}
	versions := features.Current
	compare := func(text string) {
		t.Helper()
		theirs, theirErr := reference(t, versions, text)
		ours, _, err := versions.Parse(text)
		if !slices.Equal(each(err), each(theirErr)) {
			t.Errorf("%v %q: error\n%v\nthat of the reference\n%v", versions, text, err, theirErr)
			return
		}
		if err != nil {
			refused[firstWord(err)]++
			return
		}
		accepted++
		for _, name := range names {
			g, ok := features.Find(name)
			if !ok {
				t.Fatalf("%s is not known", name)
			}
			feature := featuregate.Feature(name)
			if slices.Contains(differs, feature) && !strings.Contains(text, name) && !strings.Contains(text, "AllAlpha") {
				if ours.On(g) == theirs.Enabled(feature) {
					t.Errorf("%s does not differ", name)
				}
				continue
			}
			if ours.On(g) != theirs.Enabled(feature) {
				t.Errorf("%v %q: %s is %v, in the reference %v", versions, text, name, ours.On(g), theirs.Enabled(feature))
			}
		}
	}
	for _, text := range []string{
		"", ",", " ", "AllAlpha=true", "AllAlpha=false", "AllBeta=true", "AllBeta=false", "AllAlpha=true,AllBeta=true",
		"AllAlpha=true,AllBeta=false",
		"kube:AllAlpha=true", " kube : AllAlpha = T ", "kube:", ":", ":AllAlpha=true", "a:b:c=true",
		"kube:kube:AllAlpha=true",
		"kube:WatchList=true,ComponentFlagz=false", "kube:AllAlpha=true,", "kube:WatchList=true, ", "wardle:AllAlpha=true",
		"AllAlpha", "AllAlpha=", "=true", "AllAlpha=true=false",
		"Nope=true", "AllAlpha=true,AllAlpha=false", "allalpha=true", "ManagedFieldsOptOut",
		"kube:Nope=true,kube:WatchList=x",
	} {
		compare(text)
	}
	for _, versions = range emulated() {
		for _, text := range []string{"", "AllAlpha=true", "AllBeta=false", "AllAlpha=true,AllBeta=true"} {
			compare(text)
		}
		for _, name := range names {
			compare(name + "=true")
			compare(name + "=false")
		}
	}
	all := emulated()
	for range 500 {
		versions = all[random.IntN(len(all))]
		var entries []string
		for range 1 + random.IntN(3) {
			entries = append(entries, fmt.Sprintf("%s=%t", names[random.IntN(len(names))], random.IntN(2) == 0))
		}
		compare(strings.Join(entries, ","))
	}
	t.Log(accepted, refused)
	if accepted < 500 || refused["cannot"] < 20 || refused["missing"] < 1 || refused["invalid"] < 2 ||
		refused["unrecognized"] < 3 ||
		refused["component"] < 2 || refused["set"] < 1 || refused["depends"] < 20 || refused["prealpha"] < 100 {
		t.Errorf("only %d texts were accepted, and %v were refused", accepted, refused)
	}
}

// each returns the single errors of an error, sorted, as the reference's order is random.
func each(err error) []string {
	text := fmt.Sprint(err)
	if strings.HasPrefix(text, "[") {
		text = strings.TrimSuffix(text[1:], "]")
	}
	return slices.Sorted(slices.Values(strings.Split(text, ", ")))
}

// firstWord sorts errors.
func firstWord(err error) string {
	if strings.Contains(err.Error(), "depends on") {
		return "depends"
	}
	if strings.Contains(err.Error(), "PreAlpha") {
		return "prealpha"
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "["), " ")
	return word
}

// reference parses the flag as kube-apiserver does.
func reference(t *testing.T, v features.Versions, text string) (featuregate.FeatureGate, error) {
	t.Helper()
	gates := registry(t)
	components := compatibility.NewComponentGlobalsRegistry()
	versions := compatibility.NewEffectiveVersionFromString("1.37", "1.34", "1.34")
	versions.SetEmulationVersion(version.MustParse(v.Emulated.String()))
	versions.SetMinCompatibilityVersion(version.MustParse(v.Compatible.String()))
	if err := components.Register("kube", versions, gates); err != nil {
		t.Fatal(err)
	}
	return gates, set(t, components, text)
}

func set(t *testing.T, components compatibility.ComponentGlobalsRegistry, text string) error {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	components.AddFlags(flags)
	if err := flags.Set("feature-gates", text); err != nil {
		return err
	}
	return components.Set()
}

// emulated are the pairs of releases that a server can be told to behave like.
func emulated() (all []features.Versions) {
	for e := features.Oldest; !e.After(features.Current.Emulated); e.Minor++ {
		for c := features.Oldest; !c.After(e); c.Minor++ {
			all = append(all, features.Versions{Emulated: e, Compatible: c})
		}
	}
	return all
}

// The two flags are refused with the same messages, or mean the same releases.
//
// SPEC: RUN-4
func TestVersionsAreThoseOfTheReference(t *testing.T) {
	lists := [][]string{nil, {"1.34"}, {"1.35"}, {"1.36"}, {"kube=1.36"}, {" kube = 1.36 "}, {"1.37"}, {"1.37.0"},
		{"v1.36"}, {"1.33"}, {"1.38"}, {"2.0"}, {"1"}, {"x"}, {"1.36.1"}, {"kube=1.36.1"}, {"wardle=1.36"},
		{"1.36", "kube=1.36"}, {"1.36", "1.35"}, {"kube="}, {"=1.36"}}
	accepted, refused := 0, 0
	for _, emulated := range lists {
		for _, compatible := range lists {
			components := compatibility.NewComponentGlobalsRegistry()
			theirs := compatibility.NewEffectiveVersionFromString("1.37", "1.34", "1.34")
			if err := components.Register("kube", theirs, registry(t)); err != nil {
				t.Fatal(err)
			}
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			components.AddFlags(flags)
			for name, list := range map[string][]string{"emulated-version": emulated, "min-compatibility-version": compatible} {
				for _, value := range list {
					if err := flags.Set(name, value); err != nil {
						t.Fatal(err)
					}
				}
			}
			theirErr := components.Set()
			if theirErr == nil {
				theirErr = utilerrors.NewAggregate(components.Validate())
			}
			ours, err := features.ParseVersions(emulated, compatible)
			if !slices.Equal(each(err), each(theirErr)) {
				t.Errorf("%q, %q: error\n%v\nthat of the reference\n%v", emulated, compatible, err, theirErr)
			}
			if err != nil {
				refused++
				continue
			}
			accepted++
			if ours.Emulated.String() != theirs.EmulationVersion().String() ||
				ours.Compatible.String() != theirs.MinCompatibilityVersion().String() {
				t.Errorf("%q, %q: %v, in the reference %v", emulated, compatible, ours, theirs)
			}
		}
	}
	if accepted < 50 || refused < 200 {
		t.Errorf("%d were accepted and %d refused", accepted, refused)
	}
}
