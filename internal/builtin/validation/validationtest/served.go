package validationtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// Served are the types that a server has under some feature gates, by these and then by apiVersion and kind. It is not
// safe for concurrent use.
type Served map[string]map[string]*engine.Resource

// NewServed is empty: types are made when a case needs them.
func NewServed() Served { return Served{} }

// certificatesBegin is the time from which the certificates of pods in the tables are valid. The reference's rules are
// given the same one.
func certificatesBegin() time.Time { return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) }

// under returns the types under feature gates, which are in the syntax of --feature-gates.
func (s Served) under(gates string) (map[string]*engine.Resource, error) {
	if s[gates] != nil {
		return s[gates], nil
	}
	set, _, err := features.Parse(gates)
	if err != nil {
		return nil, err
	}
	s[gates] = map[string]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{Features: set, Now: certificatesBegin}.Every()) {
		s[gates][r.APIVersion()+" "+r.Kind] = r
	}
	return s[gates], nil
}

// kind is the kind of a document under feature gates.
func (s Served) kind(gates string, doc map[string]any) (*engine.Resource, error) {
	types, err := s.under(gates)
	if err != nil {
		return nil, err
	}
	if r := types[fmt.Sprint(doc["apiVersion"], " ", doc["kind"])]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("no kind %v of %v", doc["kind"], doc["apiVersion"])
}

// Request is the request of a case: a body, and the stored object, in the form in which validation receives them.
type Request struct {
	resource  *engine.Resource
	verb      string
	body, old object.Value
}

// Request is the request of a case.
func (s Served) Request(c *Case, documents map[string]map[string]any) (*Request, error) {
	doc, err := c.Before(documents)
	if err != nil {
		return nil, err
	}
	r, err := s.kind(c.Gates, doc)
	if err != nil {
		return nil, err
	}
	request := &Request{resource: r, verb: c.Verb}
	if c.Verb != "create" {
		before, err := s.kind(cmp.Or(c.GatesBefore, c.Gates), doc)
		if err != nil {
			return nil, err
		}
		if request.old, err = stored(before, doc); err != nil {
			return nil, err
		}
		if doc, err = document(request.old); err != nil {
			return nil, err
		}
	}
	if doc, err = c.After(doc); err != nil {
		return nil, err
	}
	if request.body, err = decoded(r, doc); err == nil && c.Verb != "create" {
		request.body = named(request.body, request.old)
	}
	return request, err
}

// named is a body with the name and the namespace of the stored object: a body with others is refused before
// validation.
func named(body, old object.Value) object.Value {
	var kept []object.Member
	var none []string
	for _, key := range []string{"generateName", "name", "namespace"} {
		if v, ok := old.At("metadata").Get(key); ok {
			kept = append(kept, object.Member{Key: key, Value: v})
		} else {
			none = append(none, key)
		}
	}
	return body.With("metadata", body.At("metadata").Edit(kept, none...))
}

// Kept is the object of a case that is stored before the request, as a document.
func (s Served) Kept(c *Case, documents map[string]map[string]any) (map[string]any, error) {
	request, err := s.Request(c, documents)
	if err != nil {
		return nil, err
	}
	return document(request.old)
}

func document(obj object.Value) (map[string]any, error) {
	var doc map[string]any
	err := json.Unmarshal(object.AppendJSON(nil, obj), &doc)
	return doc, err
}

// decoded is a document in the form in which validation receives it: decoded, defaulted, and with the fields that the
// server adds.
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

// stored is an object in its stored form: created, and with the status of its document.
func stored(r *engine.Resource, doc map[string]any) (object.Value, error) {
	obj, err := decoded(r, doc)
	if err != nil {
		return object.Nil, err
	}
	created := r.PrepareCreate(obj, access.User{})
	if doc["status"] != nil {
		created = created.With("status", obj.At("status"))
	}
	return created, nil
}

// Refuse returns the errors of a request.
func (q *Request) Refuse() (field.ErrorList, error) {
	r, old := q.resource, q.old
	switch q.verb {
	case "create":
		obj := r.PrepareCreate(q.body, access.User{})
		errs := objectmeta.ObjectMeta(obj.At("metadata"), r.Namespaced, r.ValidateName, field.NewPath("metadata"))
		if r.Validate != nil {
			errs = append(errs, r.Validate(context.Background(), obj)...)
		}
		return errs, nil
	case "update":
		obj := r.PrepareUpdate(q.body, old)
		errs := objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
		if r.ValidateUpdate != nil {
			errs = append(errs, r.ValidateUpdate(context.Background(), obj, old)...)
		}
		return errs, nil
	}
	sub := r.Subresource(q.verb)
	if sub == nil {
		return nil, fmt.Errorf("%s has no %s", r.Kind, q.verb)
	}
	obj, err := sub.Write(old, q.body)
	if err != nil {
		return nil, err
	}
	errs := objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), field.NewPath("metadata"))
	if sub.Validate != nil {
		errs = append(errs, sub.Validate(context.Background(), q.body, obj, old)...)
	}
	return errs, nil
}
