package engine

import (
	"context"
	"net/http"
	"testing"

	"plinth/object"
)

// What is written under a term is refused by every verb once a later term has begun. A term begins with the write that
// names it, and not with one that is refused or a dry run.
//
// SPEC: STORE-2
func TestTerms(t *testing.T) {
	b := newBench(t)
	b.widgets.CreateOnUpdate = true
	takeOver := func(rq *Request, body string) (*Term, error) {
		rq.Term = &Term{Name: "work"}
		_, err := b.Apply(b.Context(), rq, b.parse(body))
		return rq.Term, err
	}
	lease := func() *Request {
		return &Request{Resource: b.widgets, Namespace: "ns", Name: "lease", FieldManager: "m", Force: true}
	}
	body := func(holder, version string) string {
		return `{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"lease"` + version + `},"spec":{"by":"` +
			holder + `"}}`
	}
	first, err := takeOver(lease(), body("one", ""))
	if err != nil || !first.Begun() {
		t.Fatal(err, first)
	}
	for _, verb := range conditionalVerbs {
		if !verb.creates && verb.name != "get" {
			b.create(`{"metadata":{"name":"a"},"spec":{"by":"nobody"}}`)
		}
		if _, err := verb.do(Under(b.Context(), first), b, b.request("a")); err != nil && verb.name != "get" {
			t.Errorf("%s under the term: %v", verb.name, err)
		}
		_, _ = b.Delete(b.Context(), b.request("a"), DeleteOptions{})
	}

	// A refused take-over and a dry run begin no term.
	if late, err := takeOver(lease(), body("two", `,"resourceVersion":"1"`)); err == nil || late.Begun() {
		t.Errorf("a stale take-over has begun a term: %v", err)
	}
	dry := lease()
	dry.DryRun = true
	if none, err := takeOver(dry, body("two", "")); err != nil || none.Begun() {
		t.Errorf("a dry run has begun a term: %v", err)
	}
	under := func(term *Term, name string) error {
		_, err := b.Create(Under(b.Context(), term), b.request(""), object.Parsed{Value: object.Fields("metadata",
			object.Fields("name", object.StringOf(name)))})
		return err
	}
	if err := under(first, "still"); err != nil {
		t.Error(err)
	}

	second, err := takeOver(lease(), body("two", ""))
	if err != nil || !second.Begun() {
		t.Fatal(err, second)
	}
	refused := 0
	for _, verb := range conditionalVerbs {
		if verb.name == "get" {
			continue
		}
		if !verb.creates {
			b.create(`{"metadata":{"name":"a"},"spec":{"by":"nobody"}}`)
		}
		before := b.store.Revision()
		_, err := verb.do(Under(b.Context(), first), b, b.request("a"))
		b.wants(err, http.StatusServiceUnavailable, "taken over")
		if b.store.Revision() != before {
			t.Errorf("%s was written after its term", verb.name)
		}
		if refused++; !verb.creates {
			b.must(b.Delete(b.Context(), b.request("a"), DeleteOptions{}))
		}
	}
	if refused < 7 {
		t.Errorf("only %d verbs", refused)
	}
	b.wants(under(first, "late"), http.StatusServiceUnavailable, "taken over")
	if err := under(second, "new"); err != nil {
		t.Error(err)
	}
	if len(OfTerm(context.Background())) != 0 {
		t.Error("there is a term without one")
	}
}
