package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/store"
)

// A watch has a term only if no version without it can be selected.
//
// SPEC: WATCH-1, LIST-7
func TestTermsOfSelections(t *testing.T) {
	field := func(name, value string) store.Term { return store.Term{Name: name, Value: value} }
	label := func(name, value string) store.Term { return store.Term{Label: true, Name: name, Value: value} }
	for _, c := range []struct {
		fields, labels string
		want           store.Term
	}{
		{"", "", store.Term{}},
		{"spec.nodeName=n", "", field("spec.nodeName", "n")},
		{"spec.nodeName==n", "", field("spec.nodeName", "n")},
		{"spec.nodeName!=n", "", store.Term{}},
		{"spec.nodeName=", "", store.Term{}},  // also selects objects that have no such field
		{"metadata.name=n", "", store.Term{}}, // it is in no sidecar
		{"metadata.namespace=n", "", store.Term{}},
		{"status.phase=Running,spec.nodeName=n", "", field("spec.nodeName", "n")},
		{"involvedObject.kind=Pod,involvedObject.name=p,involvedObject.uid=u", "", field("involvedObject.uid", "u")},
		{"involvedObject.kind=Pod,involvedObject.name=p", "", field("involvedObject.name", "p")},
		{"status.phase!=Running,type=x", "", field("type", "x")},
		{"", "app=web", label("app", "web")},
		{"", "app==web", label("app", "web")},
		{"", "app=", label("app", "")}, // the label must exist, even if it is empty
		{"", "app in (web)", label("app", "web")},
		{"", "app in (web,db)", store.Term{}},
		{"", "app notin (web)", store.Term{}},
		{"", "app!=web", store.Term{}},
		{"", "app", store.Term{}},
		{"", "!app", store.Term{}},
		{"", "n>1,app=web", label("app", "web")},
		{"spec.nodeName=n", "app=web", field("spec.nodeName", "n")},
		{"spec.nodeName!=n", "app=web", label("app", "web")},
	} {
		var s selection
		if c.fields != "" {
			s.fields = compileFields(fields.ParseSelectorOrDie(c.fields))
		}
		if c.labels != "" {
			selector, err := labels.Parse(c.labels)
			if err != nil {
				t.Fatal(err)
			}
			s.labels = compileLabels(selector)
		}
		if got := s.term(); got != c.want {
			t.Errorf("%q %q: %+v, should be %+v", c.fields, c.labels, got, c.want)
		}
		// If the sidecars have the fields of another version of the kind, only labels count.
		s.asked = &Resource{
			Stored: &Kind{Storage: &Version{}},
			Served: &Version{selection: 1},
		}
		if got := s.term(); got != (store.Term{}) && !got.Label {
			t.Errorf("%q %q, converted: %+v", c.fields, c.labels, got)
		}
	}
}
