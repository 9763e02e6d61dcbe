package engine

import (
	"fmt"
	"testing"
)

// annotate changes the namespace of the tests without changing its identity, so that a fence on it still holds.
func (b *bench) annotate(n int) {
	b.Helper()
	b.must(b.Patch(b.Context(), &Request{Resource: b.namespaces, Name: "ns"},
		Patch{Type: MergePatch, Body: fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"},"labels":{"n":"%d"}}}`, n, n)}))
}

// A create is not repeated because its namespace was annotated and labelled meanwhile: the fence still holds.
//
// SPEC: URI-5
func TestCreateInABusyNamespace(t *testing.T) {
	b := newBench(t)
	d := b.draft(b.request("a"), OperationCreate)
	// A second pass of admission requires the same namespace once more.
	for range 2 {
		if err := d.admit(t.Context()); err != nil || len(d.transaction().fences) != 1 {
			t.Fatalf("the create needs one fence: %v, %v", d.transaction().fences, err)
		}
	}
	b.annotate(1)
	if _, err := b.store.Commit(t.Context(), d.transaction().fences, nil); err != nil {
		t.Errorf("the fence fails after an annotation: %v", err)
	}
}

// A create whose namespace is deleted between admission and the commit is refused; if another namespace has the name by
// then, the object is created in that one.
//
// SPEC: URI-5
func TestCreateInANamespaceThatGoes(t *testing.T) {
	for _, again := range []bool{false, true} {
		b := newBench(t)
		namespace := &Request{Resource: b.namespaces, Name: "ns"}
		b.meanwhile(func() {
			b.must(b.Delete(t.Context(), namespace, DeleteOptions{}))
			if again {
				b.must(b.Create(t.Context(), &Request{Resource: b.namespaces}, b.parse(`{"metadata":{"name":"ns"}}`)))
			}
		})
		result, err := b.Create(t.Context(), b.request("a"), b.parse(`{"metadata":{"name":"a"}}`))
		if !again {
			b.wants(err, 404, `namespaces "ns" not found`)
			continue
		}
		if made := b.must(result, err).Object.Revision; made <= b.must(b.Get(t.Context(), namespace, "")).Object.Revision {
			t.Errorf("the object was created at revision %d, before its namespace", made)
		}
	}
}
