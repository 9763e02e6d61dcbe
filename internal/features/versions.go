package features

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
)

// Release is a release of Kubernetes: {1, 37}. The zero Release is none.
type Release struct{ Major, Minor int }

// After says whether a release is newer than another one.
func (r Release) After(other Release) bool {
	return r.Major > other.Major || r.Major == other.Major && r.Minor > other.Minor
}

// String is the release as the flags have it: "1.37".
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// Versions are the releases that a server behaves like: the one that it emulates, and the oldest one that has to be
// able to read what it stores.
type Versions struct{ Emulated, Compatible Release }

// Current is what a server emulates without flags: its own release. Oldest is the oldest release that can be emulated.
var (
	Current = Versions{Emulated: Release{1, 37}, Compatible: Release{1, 36}}
	Oldest  = Release{1, 34}
)

// LatestExpressions says whether new expressions in CEL may use what this release has brought: the oldest release that
// reads them is this one.
func (v Versions) LatestExpressions() bool { return !Current.Emulated.After(v.Compatible) }

// ParseVersions parses the values of --emulated-version and --min-compatibility-version: "1.36", or "kube=1.36", which
// is the only component. Its errors are those of the reference.
func ParseVersions(emulated, compatible []string) (Versions, error) {
	v := Current
	if r, err := parseRelease(emulated); err != nil {
		return v, err
	} else if r != (Release{}) {
		v.Emulated, v.Compatible = r, Release{r.Major, r.Minor - 1}
		if Oldest.After(v.Compatible) {
			v.Compatible = Oldest
		}
	}
	if r, err := parseRelease(compatible); err != nil {
		return v, err
	} else if r != (Release{}) {
		v.Compatible = r
	}
	return v, v.check()
}

// check says which of the versions is out of range.
func (v Versions) check() error {
	var wrong []error
	if v.Emulated.After(Current.Emulated) || Oldest.After(v.Emulated) {
		wrong = append(wrong, fmt.Errorf("emulation version %s is not between [%s, %s.0]", v.Emulated, Oldest,
			Current.Emulated))
	}
	if v.Compatible.After(v.Emulated) || Oldest.After(v.Compatible) {
		wrong = append(wrong, fmt.Errorf("minCompatibilityVersion version %s is not between [%s, %s]", v.Compatible, Oldest,
			v.Emulated))
	}
	return utilerrors.NewAggregate(wrong)
}

// parseRelease parses the value of a flag; the zero Release: it has none.
func parseRelease(list []string) (found Release, err error) {
	for _, text := range slices.DeleteFunc(slices.Clone(list), func(text string) bool { return text == "" }) {
		component, release, ok := strings.Cut(text, "=")
		if component = strings.TrimSpace(component); !ok {
			component, release = "kube", text
		}
		parsed, err := version.Parse(strings.TrimSpace(release))
		if err != nil {
			return found, err
		}
		if parsed.Patch() != 0 {
			return found, fmt.Errorf("patch version not allowed, got: %s=%s", component, parsed)
		}
		if component != "kube" {
			return found, errors.New("component not registered: " + component)
		}
		next := Release{int(parsed.Major()), int(parsed.Minor())}
		if found != (Release{}) {
			return found, fmt.Errorf("duplicate version flag, kube=%s and kube=%s", found, next)
		}
		found = next
	}
	return found, nil
}
