package validation

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// maxSigner is the length of the longest signer: a domain, a slash, and the names of a namespace and of an object in
// it.
const maxSigner = 2*utilvalidation.DNS1123SubdomainMaxLength + utilvalidation.DNS1123LabelMaxLength + 2

// signerName checks example.com/name.
func (f *errorList) signerName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	domain, path, _ := strings.Cut(name, "/")
	if strings.Count(name, "/") != 1 {
		f.Invalid(p, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	if len(domain) > utilvalidation.DNS1123SubdomainMaxLength {
		f.TooLong(p, utilvalidation.DNS1123SubdomainMaxLength)
	}
	f.parts(p, domain, objectmeta.LabelErrors)
	if !strings.Contains(domain, ".") {
		f.Invalid(p, domain, "should be a domain with at least two segments separated by dots")
	}
	f.parts(p, path, objectmeta.SubdomainErrors)
	if len(name) > maxSigner {
		f.TooLong(p, maxSigner)
	}
}

// parts reports the errors of the first invalid part between dots.
func (f *errorList) parts(p *fielderrors.Location, s string, faultsOf func(string) []string) {
	for part := range strings.SplitSeq(s, ".") {
		if wrong := faultsOf(part); len(wrong) > 0 {
			for _, w := range wrong {
				f.Invalid(p, s, fmt.Sprintf("validating label %q: %s", part, w))
			}
			return
		}
	}
}

func isKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// signerOfBundle is the signer at the beginning of the name of a ClusterTrustBundle, in its form there, with a colon
// for the slash; "" if the name does not have one.
func signerOfBundle(name string) string {
	return name[:max(0, strings.LastIndex(name, ":"))]
}

// trustBundleNameErrors returns the errors in the name of a ClusterTrustBundle of a signer.
func trustBundleNameErrors(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{"ClusterTrustBundle without signer name must not have \":\" in its name"}
		}
		return objectmeta.SubdomainErrors(name)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer,
			prefix)}
	}
	return objectmeta.SubdomainErrors(rest)
}

// userAnnotations checks the annotations that a client passes to a signer: keys need a domain.
func (f *errorList) userAnnotations(annotations object.Value, p *fielderrors.Location) {
	size := 0
	for _, m := range annotations.Members() {
		size += len(m.Key) + m.Value.Len()
		key := strings.ToLower(m.Key)
		switch wrong := objectmeta.LabelKeyErrors(key); {
		case key == "":
			f.Required(p, "")
		case len(wrong) > 0:
			f.Each(p, key, wrong)
		case !strings.Contains(key, "/"):
			f.Invalid(p, key, "must be a domain-prefixed key (such as \"acme.io/foo\")")
		}
	}
	if size > objectmeta.MaxAnnotations {
		f.TooLong(p, objectmeta.MaxAnnotations)
	}
}
