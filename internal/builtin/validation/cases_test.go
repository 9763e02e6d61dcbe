package validation_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// resources are the served types by apiVersion and kind.
func resources() map[string]*engine.Resource {
	byKind := map[string]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}) {
		byKind[r.APIVersion()+" "+r.Kind] = r
	}
	return byKind
}

// decoded is a document as a request brings it to validation: decoded, defaulted, and with what the server adds.
func decoded(r *engine.Resource, doc map[string]any) (object.Value, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return object.Nil, err
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return object.Nil, err
	}
	d, err := r.Schema().Decode(parsed.Value)
	if err != nil {
		return object.Nil, err
	}
	if len(d.Unknown) > 0 {
		return object.Nil, fmt.Errorf("unknown fields %q", d.Unknown)
	}
	obj := d.Value
	if r.Default != nil {
		obj = r.Default(obj)
	}
	meta := obj.At("metadata").Edit([]object.Member{
		{Key: "creationTimestamp", Value: object.StringOf("2023-11-14T22:13:20Z")},
		{Key: "resourceVersion", Value: object.StringOf("7")},
		{Key: "uid", Value: object.StringOf("5f3c0cbe-3f2c-4a0e-8a4e-6a3a1d3c0001")},
	})
	return obj.With("metadata", meta), nil
}

// stored is an object as it is kept: created, and given the status that its document has.
func stored(r *engine.Resource, doc map[string]any) (object.Value, error) {
	obj, err := decoded(r, doc)
	if err != nil {
		return object.Nil, err
	}
	created := r.PrepareCreate(obj, access.User{})
	if status, ok := obj.Get("status"); ok {
		created = created.With("status", status)
	}
	return created, nil
}

// verdict is what is wrong with a request.
func verdict(r *engine.Resource, verb string, body, old object.Value) (field.ErrorList, error) {
	if verb == "create" {
		obj := r.PrepareCreate(body, access.User{})
		faults := objectmeta.ObjectMeta(obj.At("metadata"), r.Namespaced, r.ValidateName, field.NewPath("metadata"))
		if r.Validate != nil {
			faults = append(faults, r.Validate(obj)...)
		}
		return faults, nil
	}
	if verb == "update" {
		obj := r.PrepareUpdate(body, old)
		faults := objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
		if r.ValidateUpdate != nil {
			faults = append(faults, r.ValidateUpdate(obj, old)...)
		}
		return faults, nil
	}
	sub := r.Subresource(verb)
	if sub == nil {
		return nil, fmt.Errorf("%s has no %s", r.Kind, verb)
	}
	obj, err := sub.Write(old, body)
	if err != nil {
		return nil, err
	}
	faults := objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
	if sub.Validate != nil {
		faults = append(faults, sub.Validate(body, obj, old)...)
	}
	return faults, nil
}

// refusals are the faults of a case.
func refusals(byKind map[string]*engine.Resource, c *validationtest.Case, documents map[string]map[string]any) ([]string, error) {
	doc, err := c.Before(documents)
	if err != nil {
		return nil, err
	}
	r := byKind[fmt.Sprint(doc["apiVersion"], " ", doc["kind"])]
	if r == nil {
		return nil, fmt.Errorf("no kind %v of %v", doc["kind"], doc["apiVersion"])
	}
	var old object.Value
	if c.Verb != "create" {
		if old, err = stored(r, doc); err != nil {
			return nil, err
		}
		var kept map[string]any
		if err := json.Unmarshal(object.AppendJSON(nil, old), &kept); err != nil {
			return nil, err
		}
		doc = kept
	}
	if doc, err = c.After(doc); err != nil {
		return nil, err
	}
	body, err := decoded(r, doc)
	if err != nil {
		return nil, err
	}
	faults, err := verdict(r, c.Verb, body, old)
	return validationtest.Faults(faults, true), err
}

// SPEC: VAL-1, VAL-4
func TestTables(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := validationtest.Read("testdata")
	if err != nil {
		t.Fatal(err)
	}
	byKind := resources()
	for _, table := range tables {
		t.Run(table.Name, func(t *testing.T) {
			for _, c := range table.Cases {
				got, err := refusals(byKind, c, documents)
				if err != nil {
					t.Fatalf("line %d: %v", c.Line, err)
				}
				if !slices.Equal(got, c.Want) {
					t.Errorf("line %d: %s\nhave %s\nwant %s", c.Line, c, strings.Join(got, "\n     "), strings.Join(c.Want, "\n     "))
				}
			}
		})
	}
}

// Every document that the tables start from is valid itself; they could not say what a change does otherwise.
func TestDocumentsAreValid(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	byKind := resources()
	for name, doc := range documents {
		for _, verb := range []string{"create", "update", "status"} {
			if verb == "status" && doc["status"] == nil {
				continue
			}
			c := &validationtest.Case{Verb: verb, Object: name}
			if faults, err := refusals(byKind, c, documents); err != nil || len(faults) > 0 {
				t.Errorf("%s %s: %q, %v", verb, name, faults, err)
			}
		}
	}
}
