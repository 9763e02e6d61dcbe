package objectmeta

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/object"
)

// Most forms of names have two functions. Is… says without regular expressions and without allocation whether a name is
// valid, which it nearly always is. …Errors returns the messages of apimachinery for an invalid name.

// IsLowerOrDigit says whether a byte is a lower-case letter or a digit of ASCII.
func IsLowerOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// IsLetterOrDigit says whether a byte is a letter or a digit of ASCII.
func IsLetterOrDigit(c byte) bool { return IsLowerOrDigit(c) || 'A' <= c && c <= 'Z' }

// IsLabel says whether a name is a DNS label (RFC 1123).
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > utilvalidation.DNS1123LabelMaxLength || !IsLowerOrDigit(s[0]) ||
		!IsLowerOrDigit(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !IsLowerOrDigit(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// IsSubdomain says whether a name is a DNS subdomain: labels, of any length, between dots.
func IsSubdomain(s string) bool {
	if len(s) == 0 || len(s) > utilvalidation.DNS1123SubdomainMaxLength {
		return false
	}
	before := byte('.')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case IsLowerOrDigit(c):
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
	if len(s) == 0 || len(s) > 63 || !IsLetterOrDigit(s[0]) || !IsLetterOrDigit(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !IsLetterOrDigit(s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return true
}

// IsLabelKey says whether a name is a label key: a name with an optional prefix (a subdomain and a slash).
func IsLabelKey(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return isQualifiedPart(s)
	}
	return IsSubdomain(prefix) && isQualifiedPart(name)
}

// IsNativeResource says whether a resource of Pods and nodes is Kubernetes's own.
func IsNativeResource(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")
}

// IsExtendedResource says whether a resource is not Kubernetes's own, and has a name that quotas can prefix.
func IsExtendedResource(name string) bool {
	return !IsNativeResource(name) && !strings.HasPrefix(name, "requests.") && IsLabelKey("requests."+name)
}

// HasKeyWith says whether a key of a map begins with a prefix, as annotations that name a container do: without one,
// nobody has to look for that of each container.
func HasKeyWith(m object.Value, prefix string) bool {
	return slices.ContainsFunc(m.Members(), func(of object.Member) bool { return strings.HasPrefix(of.Key, prefix) })
}

// LabelErrors returns the errors of a DNS label.
func LabelErrors(s string) []string {
	if IsLabel(s) {
		return nil
	}
	return utilvalidation.IsDNS1123Label(s)
}

// SubdomainErrors returns the errors of a DNS subdomain.
func SubdomainErrors(s string) []string {
	if IsSubdomain(s) {
		return nil
	}
	return utilvalidation.IsDNS1123Subdomain(s)
}

// LongNameErrors is SubdomainErrors with the messages of generated rules.
func LongNameErrors(s string) []string {
	if IsSubdomain(s) {
		return nil
	}
	return content.IsDNS1123Subdomain(s)
}

// LabelKeyErrors returns the errors of a label key.
func LabelKeyErrors(s string) []string {
	if IsLabelKey(s) {
		return nil
	}
	return content.IsLabelKey(s)
}

// LabelValueErrors returns the errors of a label value.
func LabelValueErrors(s string) []string {
	if s == "" || isQualifiedPart(s) {
		return nil
	}
	return content.IsLabelValue(s)
}

// PathSegmentErrors returns the errors of a name, or of the beginning of one, as a segment of a URL path.
func PathSegmentErrors(s string, prefix bool) []string {
	if strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, '%') < 0 && s != "." && s != ".." {
		return nil
	}
	if prefix {
		return content.IsPathSegmentPrefix(s)
	}
	return content.IsPathSegmentName(s)
}

// EventName is the name of an Event about an object, which is a UUID if the name of the object is none for an Event.
func EventName(of string, now time.Time) string {
	name := fmt.Sprintf("%s.%x", of, now.UnixNano())
	if len(utilvalidation.IsDNS1123Subdomain(name)) > 0 {
		return uuid.NewString()
	}
	return name
}
