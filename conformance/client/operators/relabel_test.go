package operators

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"plinth/conformance/internal/harness"
)

// A conversion webhook may give an object other labels. What a label selector selects are the labels of the version
// that is asked for: in lists, in watches and in deletes of collections, also together with a field selector and while
// the webhook is away. In v1 the label is colour, in v2 paint.
//
// SPEC: EXT-1, LIST-2
func TestSelectorsOfConvertedLabels(t *testing.T) {
	kinds := []harness.Kind{harness.Plinth}
	if harness.WantReference() {
		kinds = append(kinds, harness.Reference)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { relabel(t, kind) })
	}
}

func relabel(t *testing.T, kind harness.Kind) {
	config, err := harness.Run(t, harness.Options{Kind: kind}).Config()
	if err != nil {
		t.Fatal(err)
	}
	hook := newConverter(t)
	hook.relabels = true
	s := &studio{T: t, hook: hook, client: dynamic.NewForConfigOrDie(config)}
	s.v1, s.v2 = s.resource("paints.example.com", "v1", "paints"), s.resource("paints.example.com", "v2", "paints")
	s.define()
	s.labelled(s.v1, "v1", "a", "colour", "red")
	s.labelled(s.v1, "v1", "b", "colour", "blue")
	s.labelled(s.v2, "v2", "c", "paint", "red")

	began, err := s.v2.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from := began.GetResourceVersion()
	lists := func(title string) {
		t.Helper()
		for _, rv := range []string{"", "0"} {
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "paint=red", ResourceVersion: rv}, "a c")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "paint in (red,blue)", ResourceVersion: rv}, "a b c")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "!colour", ResourceVersion: rv}, "a b c")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "colour=red", ResourceVersion: rv}, "")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "paint=red", FieldSelector: "spec.paint=of-c",
				ResourceVersion: rv}, "c")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "colour=red", FieldSelector: "spec.paint=of-c",
				ResourceVersion: rv}, "")
			s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "paint=red", FieldSelector: "metadata.name=c",
				ResourceVersion: rv}, "c")
			s.selects(title, s.v1, metav1.ListOptions{LabelSelector: "colour=red", ResourceVersion: rv}, "a c")
			s.selects(title, s.v1, metav1.ListOptions{LabelSelector: "paint=red", ResourceVersion: rv}, "")
		}
		s.selects(title, s.v2, metav1.ListOptions{LabelSelector: "paint=red", Limit: 1}, "a c")
	}
	lists("with the webhook")
	hook.stop()
	lists("while the webhook is away")
	hook.start()

	s.relabelAll()
	follow := func(title string, r dynamic.ResourceInterface, selector, from, want string) {
		t.Helper()
		last := map[string]any{"colour": "red"}
		if selector == "!paint" {
			last = nil
		}
		s.events(title, r, metav1.ListOptions{LabelSelector: selector, ResourceVersion: from}, last, want)
	}
	follow("the events since then", s.v2, "paint=red", from, "MODIFIED a, DELETED a, ADDED b, DELETED c")
	follow("those of the other version", s.v1, "colour=red", from, "MODIFIED a, DELETED a, ADDED b, DELETED c")
	follow("those without a label that all have in this version", s.v2, "!paint", from, "")
	follow("all with the label, from the state at hand", s.v2, "paint", "0", "ADDED a, ADDED b")

	s.deletes(metav1.ListOptions{LabelSelector: "colour"}, "a b")
	s.deletes(metav1.ListOptions{LabelSelector: "paint=red"}, "a")
}

// labelled creates an object whose label and only field have the name of the version.
func (s *studio) labelled(r dynamic.ResourceInterface, version, name, label, value string) {
	s.Helper()
	_, err := r.Create(s.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "paints.example.com/" + version, "kind": "Paint",
		"metadata": map[string]any{"name": name, "labels": map[string]any{label: value}},
		"spec":     map[string]any{label: "of-" + name},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// relabelAll makes a field of a differ, gives a and b another label, and removes c.
func (s *studio) relabelAll() {
	s.Helper()
	for _, change := range []struct{ name, patch string }{
		{"a", `{"spec":{"colour":"other"}}`}, {"a", `{"metadata":{"labels":{"colour":"green"}}}`},
		{"b", `{"metadata":{"labels":{"colour":"red"}}}`},
	} {
		if _, err := s.v1.Patch(s.Context(), change.name, types.MergePatchType, []byte(change.patch),
			metav1.PatchOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	// The new label goes through the version of the client, and then into the stored one.
	if _, err := s.v2.Patch(s.Context(), "b", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"paint":"red"}}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	if err := s.v1.Delete(s.Context(), "c", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// selects demands that a list, read page by page, has the objects with these names.
func (s *studio) selects(title string, r dynamic.ResourceInterface, o metav1.ListOptions, want string) {
	s.Helper()
	var names []string
	for {
		page, err := r.List(s.Context(), o)
		if err != nil {
			s.Errorf("%s: list %+v: %v", title, o, err)
			return
		}
		for _, item := range page.Items {
			names = append(names, item.GetName())
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			break
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		s.Errorf("%s: list %+v: %q, want %q", title, o, got, want)
	}
}

// events demands that a watch has these events, and no others before an object with the labels of last, in v1, is
// created, which is selected, too.
func (s *studio) events(title string, r dynamic.ResourceInterface, o metav1.ListOptions, last map[string]any,
	want string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	end, err := s.v1.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "paints.example.com/v1", "kind": "Paint",
		"metadata": map[string]any{"generateName": "last-", "labels": last},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	w, err := r.Watch(ctx, o)
	if err != nil {
		s.Errorf("%s: %v", title, err)
		return
	}
	defer w.Stop()
	var got []string
	for {
		event, ok := <-w.ResultChan()
		obj, isObject := event.Object.(*unstructured.Unstructured)
		if !ok || !isObject {
			s.Errorf("%s: the watch ended after %v: %v", title, got, event)
			return
		}
		if obj.GetName() == end.GetName() {
			break
		}
		if !strings.HasPrefix(obj.GetName(), "last-") { // the end of another watch
			got = append(got, fmt.Sprintf("%s %s", event.Type, obj.GetName()))
		}
	}
	if text := strings.Join(got, ", "); text != want {
		s.Errorf("%s: %q, want %q", title, text, want)
	}
	if err := s.v1.Delete(ctx, end.GetName(), metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// deletes deletes what is selected in v2, and demands that the objects with these names are left.
func (s *studio) deletes(o metav1.ListOptions, left string) {
	s.Helper()
	if err := s.v2.DeleteCollection(s.Context(), metav1.DeleteOptions{}, o); err != nil {
		s.Errorf("delete %+v: %v", o, err)
	}
	s.selects("what is left", s.v1, metav1.ListOptions{}, left)
}
