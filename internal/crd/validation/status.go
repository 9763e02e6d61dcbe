package validation

import (
	"net/url"
	"strings"

	"plinth/object"
)

const approvalAnnotation = "api-approved.kubernetes.io"

// approval is what the annotation with which an API of the Kubernetes project is approved says.
type approval uint8

const (
	approvalInvalid approval = iota
	approvalGiven
	approvalBypassed
	approvalMissing
)

// approvalOf reads the annotation.
func approvalOf(crd object.Value) (approval, string) {
	text := crd.At("metadata", "annotations", approvalAnnotation).Str()
	address, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		return approvalMissing, text
	case strings.HasPrefix(text, "unapproved"):
		return approvalBypassed, text
	case err == nil && address.Host != "" && address.Scheme != "":
		return approvalGiven, text
	}
	return approvalInvalid, text
}

// approved demands an approval of the groups of the Kubernetes project, unless it was missing or bad before.
func (c *checker) approved(crd object.Value) {
	if !protectedGroup(c.def.spec.At("group").Str()) {
		return
	}
	now, text := approvalOf(crd)
	if c.approval != nil && *c.approval == now {
		return
	}
	const (
		protected = `protected groups must have approval annotation "` + approvalAnnotation + `"`
		see       = ", see https://github.com/kubernetes/enhancements/pull/1111"
	)
	at := root.To("metadata").To("annotations").Key(approvalAnnotation)
	switch now {
	case approvalMissing:
		c.Required(at, protected+see)
	case approvalInvalid:
		c.Invalid(at, text, protected+` with either a URL or a reason starting with "unapproved"`+see)
	}
}

// protectedGroup says whether a group is one of the Kubernetes project.
func protectedGroup(group string) bool {
	for _, domain := range [...]string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}
