package crd

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/merge"
	"plinth/object"
)

const scalable = `{"spec":{"group":"g.example.com","versions":[
	{"name":"v1","subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}}},
	{"name":"v2","subresources":{"scale":{"specReplicasPath":".spec.size.wanted","statusReplicasPath":".status.size"}}},
	{"name":"v3","subresources":{"status":{}}}]}}`

func text(v object.Value) string { return string(object.AppendObject(nil, v)) }

// shown prints the result of a function for an object, or its error with the code.
func shown(v object.Value, err error) string {
	if err != nil {
		return fmt.Sprintf("%d %s", apierr.From(err).Code, apierr.From(err).Message)
	}
	return text(v)
}

// SPEC: URI-7, EXT-1
func TestScale(t *testing.T) {
	definition := parse(t, scalable)
	versions := definition.At("spec", "versions").Items()
	refused := field.ErrorList{field.Required(field.NewPath("spec"), "")}
	s := scaleOf(versions[0], commonOf(definition),
		func(_ context.Context, _, _ object.Value) field.ErrorList { return refused })
	for _, c := range []struct{ obj, scale, base string }{
		{
			`{"metadata":{"name":"a","namespace":"n","uid":"u","labels":{"x":"y"}},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}`,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}`,
			"",
		},
		{
			`{"spec":{"replicas":0}}`,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{},"spec":{},"status":{"replicas":0}}`, "",
		},
		{
			`{"spec":{}}`,
			`500 Internal error occurred: the spec replicas field ".spec.replicas" does not exist`,
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{},"spec":{"replicas":-2147483648},"status":{"replicas":0}}`,
		},
		{`{"spec":{"replicas":"3"}}`, `500 .spec.replicas accessor error: 3 is of the type string, expected int64`, ""},
		{`{"spec":{"replicas":null}}`, `500 .spec.replicas accessor error: <nil> is of the type <nil>, expected int64`,
			""},
		{`{"spec":[1]}`,
			`500 .spec.replicas accessor error: [1] is of the type []interface {}, expected map[string]interface{}`, ""},
		{`{"spec":{"replicas":1},"status":{"selector":{"a":"b"}}}`,
			`500 .status.selector accessor error: map[a:b] is of the type map[string]interface {}, expected string`,
			""},
	} {
		if c.base == "" {
			c.base = c.scale
		}
		if got := shown(s.Represent(parse(t, c.obj))); got != c.scale {
			t.Errorf("the Scale of %s:\nhave %s\nwant %s", c.obj, got, c.scale)
		}
		if got := shown(s.Base(parse(t, c.obj))); got != c.base {
			t.Errorf("what changes of %s begin with:\nhave %s\nwant %s", c.obj, got, c.base)
		}
	}
	if got := s.Validate(t.Context(), object.Nil, object.Nil, object.Nil); len(got) != 1 || got[0] != refused[0] {
		t.Errorf("the object is not validated: %v", got)
	}
	if scaleOf(versions[2], commonOf(definition), nil) != nil {
		t.Error("a version without a Scale has one")
	}
	path := func(names ...string) (p merge.Path) {
		for _, name := range names {
			p = append(p, merge.FieldElement(name))
		}
		return p
	}
	want := merge.Replicas{"g.example.com/v1": path("spec", "replicas"), "g.example.com/v2": path("spec", "size",
		"wanted"), "g.example.com/v3": nil}
	if got := fmt.Sprint(s.Replicas); got != fmt.Sprint(want) {
		t.Errorf("replicas are at %v, not %v", got, want)
	}
}

// SPEC: URI-7, EXT-1
func TestSetReplicas(t *testing.T) {
	definition := parse(t, scalable)
	s := scaleOf(definition.At("spec", "versions").Items()[1], commonOf(definition), nil)
	for _, c := range []struct{ obj, body, want string }{
		{`{"spec":{"size":{"wanted":1,"other":2}}}`, `{"spec":{"replicas":7}}`,
			`{"spec":{"size":{"other":2,"wanted":7}}}`},
		{`{"x":1}`, `{"spec":{"replicas":7}}`, `{"spec":{"size":{"wanted":7}},"x":1}`},
		{`{"spec":{"size":{"wanted":1}}}`, `{"spec":{}}`, `{"spec":{"size":{"wanted":0}}}`},
		{`{"spec":{"size":"XL"}}`, `{"spec":{"replicas":7}}`,
			`500 value cannot be set because .spec.size is not a map[string]interface{}`},
		{`{"spec":{"size":null}}`, `{"spec":{"replicas":7}}`,
			`500 value cannot be set because .spec.size is not a map[string]interface{}`},
		{`{}`, `{"spec":{"replicas":-2147483648}}`, `400 the spec replicas field ".spec.size.wanted" cannot be empty`},
	} {
		if got := shown(s.Write(parse(t, c.obj), parse(t, c.body))); got != c.want {
			t.Errorf("%s with %s:\nhave %s\nwant %s", c.obj, c.body, got, c.want)
		}
	}
}

// Numbers that are 0, which a Scale omits, are shown as empty cells.
//
// SPEC: MED-6, URI-7
func TestScaleTable(t *testing.T) {
	definition := parse(t, scalable)
	s := scaleOf(definition.At("spec", "versions").Items()[0], commonOf(definition), nil)
	body, err := s.Represent(parse(t, `{"metadata":{"name":"a"},"spec":{"replicas":0},"status":{"replicas":0}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Cells(body)); got != "[a <nil> 0 <nil>]" {
		t.Errorf("have %s", got)
	}
	if len(s.Columns) != 4 || s.Columns[1].Name != "Desired" ||
		s.Columns[2].Description != "Number of actual replicas" {
		t.Errorf("have %+v", s.Columns)
	}
}

// SPEC: URI-7, VAL-1
func TestValidateScale(t *testing.T) {
	version := parse(t, scalable).At("spec", "versions").Items()[0]
	for _, c := range []struct{ obj, all, status string }{
		{`{"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}`, "[]", "[]"},
		{`{}`, "[]", "[]"},
		{`{"spec":{"replicas":-1}}`, "[.spec.replicas: Invalid value: -1: should be a non-negative integer]", "[]"},
		{
			`{"spec":{"replicas":2147483648},"status":{"replicas":-1}}`,
			"[.spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647 .status.replicas: Invalid value: -1: should be a non-negative integer]",
			"[.status.replicas: Invalid value: -1: should be a non-negative integer]",
		},
		{
			`{"spec":"x","status":{"selector":1}}`,
			`[.spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected map[string]interface{} .status.selector: Invalid value: "": .status.selector accessor error: 1 is of the type int64, expected string]`,
			`[.status.selector: Invalid value: "": .status.selector accessor error: 1 is of the type int64, expected string]`,
		},
	} {
		if got := fmt.Sprint(validateScale(version)(parse(t, c.obj))); got != c.all {
			t.Errorf("%s:\nhave %s\nwant %s", c.obj, got, c.all)
		}
		if got := fmt.Sprint(validateScaleStatus(version)(parse(t, c.obj))); got != c.status {
			t.Errorf("the status of %s:\nhave %s\nwant %s", c.obj, got, c.status)
		}
	}
	if validateScale(object.MapOf()) != nil || validateScaleStatus(object.MapOf()) != nil {
		t.Error("a version without a Scale is validated for one")
	}
}
