package merge

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"plinth/object"
)

// podSet is the set of a manager of a Pod with a container of this name.
func podSet(container string) Set {
	key := KeyElement(object.Fields("name", object.StringOf(strings.Clone(container))))
	port := KeyElement(object.Fields("containerPort", object.IntOf(80), "protocol", object.StringOf("TCP")))
	at := func(rest ...Element) Path {
		return append(Path{FieldElement("spec"), FieldElement("containers"), key}, rest...)
	}
	return SetOf(at(), at(FieldElement("image")), at(FieldElement("ports"), port), Path{FieldElement("metadata"),
		FieldElement("finalizers"), ItemElement(object.StringOf("a/b"))})
}

// SPEC: SSA-1
// A set is printed as without Printed, and from the third time on as the value of the time before. What is kept has
// none of the memory of the sets that were printed.
func TestPrinted(t *testing.T) {
	var p Printed
	want := podSet("web").FieldsV1()
	var last object.Value
	var printed []Set
	for i := range 4 {
		s := podSet("web")
		printed = append(printed, s)
		got := p.fieldsV1(s)
		if !object.Equal(got, want) {
			t.Fatalf("print %d: %s, want %s", i, object.AppendJSON(nil, got), object.AppendJSON(nil, want))
		}
		if kept := i >= 2; kept != (got == last) {
			t.Errorf("print %d returns the value of the one before: %v, want %v", i, !kept, kept)
		}
		last = got
	}
	for i := range p.slots {
		if kept := p.slots[i].kept.Load(); kept != nil && slices.ContainsFunc(printed, kept.set.identical) {
			t.Error("the memory of a set is kept")
		}
	}
	if got := p.fieldsV1(podSet("db")); !object.Equal(got, podSet("db").FieldsV1()) {
		t.Errorf("another set is printed as %s", object.AppendJSON(nil, got))
	}
	if got := (*Printed)(nil).fieldsV1(podSet("web")); !object.Equal(got, want) {
		t.Errorf("without Printed: %s", object.AppendJSON(nil, got))
	}
}

// SPEC: SSA-1
// Sets that are equal and have other texts are not taken for each other, and sets that are too large are not kept.
func TestNotPrinted(t *testing.T) {
	var p Printed
	for _, v := range []object.Value{object.IntOf(1), object.FloatOf(1), object.NumberOf("1.00"), object.NumberOf("1.0"),
		object.IntOf(1), object.ListOf(object.FloatOf(1)), object.ListOf(object.NumberOf("1.0"))} {
		for _, e := range []Element{ItemElement(v), KeyElement(object.Fields("k", v))} {
			s := SetOf(Path{FieldElement("f"), e})
			for range 3 {
				if got := p.fieldsV1(s); !object.Equal(got, s.FieldsV1()) {
					t.Errorf("%v is printed as %s", v.Kind(), object.AppendJSON(nil, got))
				}
			}
		}
	}
	var large Set
	for i := range maxPrinted + 1 {
		large = large.Union(SetOf(Path{FieldElement(fmt.Sprint("f", i))}))
	}
	p = Printed{}
	for range 3 {
		p.fieldsV1(large)
	}
	for i := range p.slots {
		if p.slots[i].kept.Load() != nil {
			t.Error("a set that is too large is kept")
		}
	}
}

// SPEC: SSA-1
func TestPrintedConcurrently(t *testing.T) {
	var p Printed
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := range 4000 {
				s := podSet(fmt.Sprint("c", (i/3+w)%200))
				if got := p.fieldsV1(s); !object.Equal(got, s.FieldsV1()) {
					t.Errorf("printed as %s", object.AppendJSON(nil, got))
					return
				}
			}
		})
	}
	work.Wait()
}
