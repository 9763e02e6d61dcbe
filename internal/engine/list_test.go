package engine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// newForgetful is a bench whose store keeps no history.
func newForgetful(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	registry := NewRegistry([]*Resource{b.widgets, b.namespaces})
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: Describe(registry), HistoryBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b.Engine = New(Config{Store: s, Registry: registry})
	b.must(b.Create(t.Context(), &Request{Resource: b.namespaces}, b.parse(`{"metadata":{"name":"ns"}}`)))
	return b
}

func namesOf(c *Collection) string {
	var names []string
	for v := range c.Items {
		_, name := splitKey(v.Key.Name)
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// A page whose snapshot has expired is refused with a token that continues at the same place in the newest state, in
// one namespace and in all of them.
//
// SPEC: LIST-5, LIST-6
func TestExpiredPagesGoOn(t *testing.T) {
	for _, namespace := range []string{"ns", ""} {
		b := newForgetful(t)
		for i := range 4 {
			b.create(fmt.Sprintf(`{"metadata":{"name":"w%d"}}`, i))
		}
		rq := &Request{Resource: b.widgets, Namespace: namespace}
		first, err := b.List(t.Context(), rq, ListOptions{Limit: 2})
		if err != nil || namesOf(first) != "w0 w1" {
			t.Fatalf("in %q the first page is %v, %v", namespace, first, err)
		}
		b.create(`{"metadata":{"name":"w11"}}`)
		b.create(`{"metadata":{"name":"w4"}}`)
		_, err = b.List(t.Context(), rq, ListOptions{Limit: 2, Continue: first.Continue})
		b.wants(err, 410, "too old to display a consistent list result")
		expired := apierr.From(err)
		if expired.Reason != apierr.Expired || expired.Continue == "" {
			t.Fatalf("in %q the expired token is refused with %+v", namespace, expired)
		}
		next, err := b.List(t.Context(), rq, ListOptions{Limit: 3, Continue: expired.Continue})
		if err != nil || namesOf(next) != "w11 w2 w3" || next.Continue == "" || next.Revision == first.Revision {
			t.Fatalf("in %q the list continues with %q, %v", namespace, namesOf(next), err)
		}
		last, err := b.List(t.Context(), rq, ListOptions{Limit: 3, Continue: next.Continue})
		if err != nil || namesOf(last) != "w4" || last.Continue != "" {
			t.Errorf("in %q the list ends with %q, %v", namespace, namesOf(last), err)
		}
		_, err = b.List(t.Context(), rq, ListOptions{ResourceVersion: fmt.Sprint(first.Revision), Match: "Exact"})
		b.wants(err, 410, "The resourceVersion for the provided list is too old.")
	}
}

// A full page ends there: the objects after it are not searched for further selected ones, unless the selection is one
// name.
//
// SPEC: LIST-4
func TestPagesEndWhereTheyAreFull(t *testing.T) {
	b := newBench(t)
	for i, color := range []string{"red", "blue", "red", "blue"} {
		b.create(fmt.Sprintf(`{"metadata":{"name":"w%d","labels":{"color":%q}}}`, i, color))
	}
	for _, c := range []struct {
		selector, names string
		limit           int64
		more            bool
	}{
		{"color=red", "w0", 1, true},
		{"color=red", "w0 w2", 2, true}, // w3 has not been looked at yet
		{"color=blue", "w1 w3", 2, false},
		{"color=red", "w0 w2", 3, false},
	} {
		selector, err := labels.Parse(c.selector)
		if err != nil {
			t.Fatal(err)
		}
		list, err := b.List(t.Context(), b.request(""), ListOptions{Labels: selector, Limit: c.limit})
		if err != nil || namesOf(list) != c.names || (list.Continue != "") != c.more || list.Remaining != nil {
			t.Errorf("the first page of %s with limit %d is %q, token %q, %v",
				c.selector, c.limit, namesOf(list), list.Continue, err)
		}
		if !c.more {
			continue
		}
		rest, err := b.List(t.Context(), b.request(""), ListOptions{Labels: selector, Continue: list.Continue})
		if all := strings.TrimSpace(c.names + " " + namesOf(rest)); err != nil || all != "w0 w2" {
			t.Errorf("all pages of %s with limit %d are %q, %v", c.selector, c.limit, all, err)
		}
	}
	b.create(`{"metadata":{"name":"w00"}}`)
	one, err := b.List(t.Context(), b.request("w0"), ListOptions{Limit: 1})
	if err != nil || namesOf(one) != "w0" || one.Continue != "" {
		t.Errorf("the list of one name is %q, token %q, %v", namesOf(one), one.Continue, err)
	}
}
