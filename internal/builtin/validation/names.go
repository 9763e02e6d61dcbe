package validation

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// The functions below say quickly whether a name is well formed. Those that return texts say what is wrong with it, in
// the words of apimachinery, and nothing for a good name.

func lowerOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func letterOrDigit(c byte) bool { return lowerOrDigit(c) || 'A' <= c && c <= 'Z' }

// isLabel says whether a name is a DNS label (RFC 1123).
func isLabel(s string) bool {
	if len(s) == 0 || len(s) > utilvalidation.DNS1123LabelMaxLength || !lowerOrDigit(s[0]) || !lowerOrDigit(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !lowerOrDigit(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// isSubdomain says whether a name is a DNS subdomain: labels, of any length, between dots.
func isSubdomain(s string) bool {
	if len(s) == 0 || len(s) > utilvalidation.DNS1123SubdomainMaxLength {
		return false
	}
	before := byte('.')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case lowerOrDigit(c):
		case c == '-' && before != '.':
		case c == '.' && before != '.' && before != '-':
		default:
			return false
		}
		before = c
	}
	return before != '.' && before != '-'
}

// isQualifiedPart says whether a text can be a label's value, or its key without the prefix. An empty one cannot.
func isQualifiedPart(s string) bool {
	if len(s) == 0 || len(s) > 63 || !letterOrDigit(s[0]) || !letterOrDigit(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !letterOrDigit(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return true
}

// isQualified says whether a name is a label key: a name with an optional prefix (a subdomain and a slash).
func isQualified(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return isQualifiedPart(s)
	}
	return isSubdomain(prefix) && isQualifiedPart(name)
}

func labelFaults(s string) []string {
	if isLabel(s) {
		return nil
	}
	return utilvalidation.IsDNS1123Label(s)
}

func subdomainFaults(s string) []string {
	if isSubdomain(s) {
		return nil
	}
	return utilvalidation.IsDNS1123Subdomain(s)
}

func qualifiedFaults(s string) []string {
	if isQualified(s) {
		return nil
	}
	return content.IsLabelKey(s)
}

func labelValueFaults(s string) []string {
	if s == "" || isQualifiedPart(s) {
		return nil
	}
	return content.IsLabelValue(s)
}

// segmentFaults says what keeps a name out of a URL path.
func segmentFaults(s string, prefix bool) []string {
	if strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, '%') < 0 && s != "." && s != ".." {
		return nil
	}
	if prefix {
		return content.IsPathSegmentPrefix(s)
	}
	return content.IsPathSegmentName(s)
}

// requiredShortName demands a label. Rules that the reference generates from its types say so in other words.
func (f *faults) requiredShortName(p *place, s string) {
	if s == "" {
		f.required(p, "")
		return
	}
	f.shortName(p, s)
}

func (f *faults) shortName(p *place, s string) {
	if !isLabel(s) {
		f.each(p, s, content.IsDNS1123Label(s))
	}
}

// declaredDriverName demands the name of a driver in the words of generated rules.
func (f *faults) declaredDriverName(p *place, name string) {
	if name == "" {
		f.required(p, "")
		return
	}
	if len(name) > maxDriverName {
		f.tooLong(p, maxDriverName)
	}
	f.each(p, name, content.IsDNS1123SubdomainCaseless(name))
}
