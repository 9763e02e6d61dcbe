package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// requiredShortName demands a label. Rules that the reference generates from its types have another message.
func (f *errorList) requiredShortName(p *fielderrors.Location, s string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.shortName(p, s)
}

func (f *errorList) shortName(p *fielderrors.Location, s string) {
	if !objectmeta.IsLabel(s) {
		f.Each(p, s, content.IsDNS1123Label(s))
	}
}

// declaredDriverName demands the name of a driver, with the messages of generated rules.
func (f *errorList) declaredDriverName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	if len(name) > maxDriverName {
		f.TooLongCharacters(p, maxDriverName)
	}
	f.Each(p, name, content.IsDNS1123SubdomainCaseless(name))
}

// knownFinalizers are the names that need no domain.
var knownFinalizers = []string{"kubernetes", metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// qualifiedFinalizers demands a domain of finalizers. Most kinds demand this, but not all.
func (f *errorList) qualifiedFinalizers(obj object.Value) {
	for i, item := range obj.At("metadata", "finalizers").Items() {
		f.finalizerName((*fielderrors.Location)(nil).To("metadata").To("finalizers").Item(i), item.Str())
	}
}

func (f *errorList) finalizerName(p *fielderrors.Location, name string) {
	if !strings.Contains(name, "/") && !slices.Contains(knownFinalizers, name) {
		f.Invalid(p, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}
