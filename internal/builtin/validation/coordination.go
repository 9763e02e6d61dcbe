package validation

import (
	"cmp"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of coordination.k8s.io. Finalizers need no domain there.

func leaseCreate(f *errorList, obj object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	if seconds := spec.At("leaseDurationSeconds"); !seconds.IsNull() && seconds.Int() <= 0 {
		f.Invalid(p.To("leaseDurationSeconds"), seconds.Int(), "must be greater than 0")
	}
	f.nonNegativeMembers(spec, p, "leaseTransitions")
	if has(spec, "strategy") {
		f.electionStrategy(text(spec, "strategy"), p.To("strategy"))
	}
	if text(spec, "preferredHolder") != "" && text(spec, "strategy") == "" {
		f.Forbidden(p.To("preferredHolder"), "may only be specified if `strategy` is defined")
	}
}

func leaseUpdate(f *errorList, obj, _ object.Value) { leaseCreate(f, obj) }

// oldestEmulation elects the candidate with the oldest emulation version.
const oldestEmulation = "OldestEmulationVersion"

var electionStrategies = []string{oldestEmulation}

// electionStrategy demands one of the strategies of Kubernetes, or the name of another one with its domain. The place
// of the errors is one step too deep, as in the reference.
func (f *errorList) electionStrategy(strategy string, p *fielderrors.Location) {
	if !strings.Contains(strategy, "/") {
		f.only(p.To("strategy"), strategy, electionStrategies)
		return
	}
	f.qualified(p.To("strategy"), strategy)
}

func candidateCreate(f *errorList, obj object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	f.requiredText(p.To("leaseName"), text(spec, "leaseName"))
	emulation, binary := text(spec, "emulationVersion"), text(spec, "binaryVersion")
	var emulated, built semver
	var ok bool
	if emulation != "" {
		if emulated, ok = parseSemver(emulation); !ok {
			f.Invalid(p.To("emulationVersion"), emulation, "must be a valid semantic version")
		}
	}
	if binary == "" {
		f.Required(p.To("binaryVersion"), "")
	} else if built, ok = parseSemver(binary); !ok {
		f.Invalid(p.To("binaryVersion"), binary, "must be a valid semantic version")
	}
	if binary != "" && emulation != "" && built.compare(emulated) < 0 {
		f.Invalid(p.To("binaryVersion"), binary, "must be greater than or equal to `emulationVersion`")
	}
	strategy := text(spec, "strategy")
	if strategy == "" {
		f.Required(p.To("strategy"), "")
		return
	}
	if strategy == oldestEmulation && emulated.compare(semver{}) == 0 {
		f.Required(p.To("emulationVersion"),
			"must be specified when `strategy` is 'OldestEmulationVersion'")
	}
	f.electionStrategy(strategy, p.To("strategy"))
}

func candidateUpdate(f *errorList, obj, old object.Value) {
	candidateCreate(f, obj)
	if name := text(obj.At("spec"), "leaseName"); name != text(old.At("spec"), "leaseName") {
		f.Invalid((*fielderrors.Location)(nil).To("spec").To("leaseName"), name, fielderrors.Immutable)
	}
}

// semver is a version by the rules of semver.org, without its build metadata, which do not count.
type semver struct {
	numbers [3]uint64
	before  []string // the parts of the pre-release; none: it is a release
}

// parseSemver parses MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]. The result of a text that is none is the zero version.
func parseSemver(s string) (semver, bool) {
	parts := strings.SplitN(s, ".", len(semver{}.numbers))
	if len(parts) != len(semver{}.numbers) {
		return semver{}, false
	}
	var v semver
	last, build, built := strings.Cut(parts[2], "+")
	last, before, early := strings.Cut(last, "-")
	parts[2] = last
	for i, part := range parts {
		n, ok := plainNumber(part)
		if !ok {
			return semver{}, false
		}
		v.numbers[i] = n
	}
	if early {
		v.before = strings.Split(before, ".")
		for _, part := range v.before {
			if _, ok := plainNumber(part); !ok && (strings.Trim(part, "0123456789") == "" || !isSemverWord(part)) {
				return semver{}, false
			}
		}
	}
	if built {
		for part := range strings.SplitSeq(build, ".") {
			if !isSemverWord(part) {
				return semver{}, false
			}
		}
	}
	return v, true
}

// compare is negative if v is older than other, and positive if it is newer.
func (v semver) compare(other semver) int {
	for i, n := range v.numbers {
		if c := cmp.Compare(n, other.numbers[i]); c != 0 {
			return c
		}
	}
	if len(v.before) == 0 || len(other.before) == 0 {
		return cmp.Compare(len(other.before), len(v.before)) // a release comes after what was before it
	}
	for i := range min(len(v.before), len(other.before)) {
		a, b := v.before[i], other.before[i]
		m, first := plainNumber(a)
		n, second := plainNumber(b)
		c := strings.Compare(a, b)
		switch {
		case first && second:
			c = cmp.Compare(m, n)
		case first:
			c = -1
		case second:
			c = 1
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.before), len(other.before))
}

// plainNumber parses digits, the first of which is no zero before others.
func plainNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && (len(s) == 1 || s[0] != '0')
}

// isSemverWord says whether a text is a part of a pre-release or of build metadata.
func isSemverWord(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-') {
			return false
		}
	}
	return s != ""
}

// apiVersionErrors returns why a text is not the name of an API version, with its group or without.
func apiVersionErrors(s string) (wrong []string) {
	group, version, grouped := strings.Cut(s, "/")
	if !grouped {
		version = s
	}
	if strings.Contains(version, "/") {
		return []string{"an apiVersion is " + utilvalidation.RegexError(labelRule, labelPattern, "my-name", "abc-123") +
			" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"}
	}
	part := func(of, s string, faults []string) {
		if s == "" {
			faults = []string{utilvalidation.EmptyError()}
		}
		for _, fault := range faults {
			wrong = append(wrong, of+" part: "+fault)
		}
	}
	if grouped {
		part("group", group, utilvalidation.IsDNS1123Subdomain(group))
	}
	part("version", version, utilvalidation.IsDNS1035Label(version))
	return wrong
}

const (
	labelPattern = "[a-z]([-a-z0-9]*[a-z0-9])?"
	labelRule    = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', " +
		"start with an alphabetic character, and end with an alphanumeric character"
)
