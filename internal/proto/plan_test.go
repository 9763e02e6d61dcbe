package proto

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/schema"
)

// A plan that violates an invariant is noticed.
func TestPlanInvariants(t *testing.T) {
	some := func(p plan) *plan { return &p }
	for _, c := range []struct {
		plan *plan
		want string
	}{
		{some(plan{}), ""},
		{some(plan{names: []string{"a", "b", "c"}, fields: []planned{{}, {}, {none: true}},
			order: []step{{number: 2, field: 1}, {number: 3, field: -1, embedded: []step{{number: 1, field: 0}}}}}), ""},
		{some(plan{names: []string{"a", "a"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 2, field: 1}}}), "names out of order"},
		{some(plan{names: []string{"b", "a"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 2, field: 1}}}), "names out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}},
			order: []step{{number: 1, field: 0}, {number: 1, field: 1}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}},
			order: []step{{number: 2, field: 0}, {number: 1, field: 1}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}}, order: []step{{number: 1, field: -1,
			embedded: []step{{number: 2, field: 0}, {number: 1, field: 1}}}}}), "field numbers out of order"},
		{some(plan{names: []string{"a", "b"}, fields: []planned{{}, {}}, order: []step{{number: 1, field: 0}}}),
			"a field that is missing, or there twice: b"},
		{some(plan{names: []string{"a"}, fields: []planned{{}}, order: []step{{number: 1, field: 0}, {number: 2,
			field: 0}}}), "a field that is missing, or there twice: a"},
		{some(plan{names: []string{"a"}, fields: []planned{{none: true}}, order: []step{{number: 1, field: 0}}}),
			"a field that is missing, or there twice: a"},
	} {
		if have := c.plan.broken(); have != c.want {
			t.Errorf("%+v: %q, want %q", *c.plan, have, c.want)
		}
	}
}

// A field without a number in its tag is not part of the message: types that no proto file describes, such as those of
// tests, can be measured all the same.
func TestFieldsWithoutNumbers(t *testing.T) {
	typ := schema.FromGo(reflect.TypeFor[struct {
		A string `json:"a" protobuf:"bytes,2,opt,name=a"`
		B string `json:"b"`
		C string `json:"c"`
	}](), nil)
	empty, err := Size(typ, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	size, err := Size(typ, []byte(`{"a":"xyz","b":"123","c":"456"}`))
	if err != nil || size-empty != len("xyz") {
		t.Errorf("the values take %d bytes (%v), want 3: those of a", size-empty, err)
	}
}

// Rules that no served type needs today, but which other Go types may need: the zero value of a float that is not a
// pointer, and the null of a pointer to a time that is not left out when it is nil.
func TestFieldsOfOtherTypes(t *testing.T) {
	typ := schema.FromGo(reflect.TypeFor[struct {
		Float float64      `json:"float" protobuf:"fixed64,1,opt,name=float"`
		Time  *metav1.Time `json:"time" protobuf:"bytes,2,opt,name=time"`
	}](), nil)
	want := "\x09" + strings.Repeat("\x00", 8)
	if b, err := AppendMessage(nil, typ, []byte(`{"time":null}`), 0, 0); err != nil || string(b) != want {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}

// A transcoder that has not allocated anything, because its object could not be read, can be released.
func TestReleaseOfUnused(*testing.T) { new(transcoder).release() }
