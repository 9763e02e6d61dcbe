package validation

import (
	"net/url"
	"strings"

	"plinth/object"
)

// ApprovalAnnotation says where an API in a group of the Kubernetes project was approved.
const ApprovalAnnotation = "api-approved.kubernetes.io"

// Approval is the content of ApprovalAnnotation.
type Approval uint8

// The contents: invalid (none of the following); a URL; a text that begins with "unapproved"; no annotation.
const (
	ApprovalInvalid Approval = iota
	ApprovalGiven
	ApprovalBypassed
	ApprovalMissing
)

// ApprovalOf reads the annotation, and returns its text, too.
func ApprovalOf(crd object.Value) (Approval, string) {
	text := crd.At("metadata", "annotations", ApprovalAnnotation).Str()
	address, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		return ApprovalMissing, text
	case strings.HasPrefix(text, "unapproved"):
		return ApprovalBypassed, text
	case err == nil && address.Host != "": // there is no host without a scheme
		return ApprovalGiven, text
	}
	return ApprovalInvalid, text
}

// approved requires an approval for the groups of the Kubernetes project, unless the old object has the same problem.
func (c *checker) approved(crd object.Value) {
	if !ProtectedGroup(c.def.spec.At("group").Str()) {
		return
	}
	now, text := ApprovalOf(crd)
	if c.approval != nil && *c.approval == now {
		return
	}
	const (
		protected = `protected groups must have approval annotation "` + ApprovalAnnotation + `"`
		see       = ", see https://github.com/kubernetes/enhancements/pull/1111"
	)
	at := root.To("metadata").To("annotations").Key(ApprovalAnnotation)
	switch now {
	case ApprovalMissing:
		c.Required(at, protected+see)
	case ApprovalInvalid:
		c.Invalid(at, text, protected+` with either a URL or a reason starting with "unapproved"`+see)
	}
}

// ProtectedGroup says whether a group belongs to the Kubernetes project.
func ProtectedGroup(group string) bool {
	for _, domain := range [...]string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}
