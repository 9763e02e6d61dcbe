package hooks

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/patch"
)

// Question is a request as one hook sees it: in the version of the type Type. It may not be used concurrently.
type Question struct {
	*engine.Attributes
	Type        *engine.Resource
	Now, Before object.Value // the object, and the old one
}

// ReviewedIn is the AdmissionRequest without its objects and without a UID: what expressions see, too. in is the type
// that it names as its resource.
func (q *Question) ReviewedIn(in *engine.Resource) object.Value {
	asked, sub := q.Request.Resource, subresourceOf(q.Attributes)
	var m members
	m.set("kind", kindOf(q.Type, sub))
	m.set("resource", resourceOf(in))
	m.text("subResource", sub)
	m.set("requestKind", kindOf(asked, sub))
	m.set("requestResource", resourceOf(asked))
	m.text("requestSubResource", sub)
	m.text("name", q.Name)
	m.text("namespace", NamespaceOf(q.Attributes))
	m.text("operation", q.Operation.String())
	m.set("userInfo", userInfo(q.Attributes))
	m.set("dryRun", object.BoolOf(q.DryRun))
	m.set("options", q.Options())
	return object.MapOf(m...)
}

// NamespaceOf is the namespace of a request. A Namespace is in itself, as in the reference.
func NamespaceOf(a *engine.Attributes) string {
	if a.Request.Namespace == "" && isNamespaces(a.Request.Resource) {
		return a.Name
	}
	return a.Request.Namespace
}

func userInfo(a *engine.Attributes) object.Value {
	u := &a.Request.User
	var m members
	m.text("username", u.Name)
	m.text("uid", u.UID)
	if len(u.Groups) > 0 {
		m.set("groups", object.Strings(u.Groups...))
	}
	if len(u.Extra) > 0 {
		var extra members
		for key, values := range u.Extra {
			extra.set(key, object.Strings(values...))
		}
		m.set("extra", object.MapOf(extra...))
	}
	return object.MapOf(m...)
}

// members are the members of an object that is being made.
type members []object.Member

func (m *members) set(key string, v object.Value) { *m = append(*m, object.Member{Key: key, Value: v}) }

func (m *members) text(key, value string) {
	if value != "" {
		m.set(key, object.StringOf(value))
	}
}

func kindOf(r *engine.Resource, subresource string) object.Value {
	group, version, kind := r.Body(subresource)
	return object.Fields("group", object.StringOf(group), "version", object.StringOf(version),
		"kind", object.StringOf(kind))
}

func resourceOf(r *engine.Resource) object.Value {
	return object.Fields("group", object.StringOf(r.Group), "version", object.StringOf(r.Version),
		"resource", object.StringOf(r.Name))
}

// Questions converts a request to the versions that hooks ask for, each once.
type Questions struct {
	*engine.Attributes
	made map[*engine.Resource]*Question
}

// In returns the request in the version of a type.
func (s *Questions) In(ctx context.Context, r *engine.Resource) (*Question, error) {
	if q := s.made[r]; q != nil {
		return q, nil
	}
	obj, old, err := s.Attributes.In(ctx, r)
	if err != nil {
		return nil, err
	}
	q := &Question{Attributes: s.Attributes, Type: r, Now: obj, Before: old}
	if s.made == nil {
		s.made = map[*engine.Resource]*Question{}
	}
	s.made[r] = q
	return q, nil
}

// Replace sets the object of the request: every version is converted from it.
func (s *Questions) Replace(obj object.Value) {
	s.Object = obj
	s.made = nil
}

// Forbidden is a refusal: 403 with the name of the object, as the reference names one that has none yet.
func Forbidden(a *engine.Attributes, why string) *apierr.Error {
	meta := a.Object.At("metadata")
	name := cmp.Or(a.Name, meta.At("name").Str(), meta.At("generateName").Str(), "Unknown")
	return apierr.NewForbidden(a.Request.Resource.Type(), name, why)
}

// PatchError is an error of a JSON Patch as the reference words it: without its kind.
func PatchError(err error) error {
	text := err.Error()
	for _, kind := range []error{patch.ErrMalformed, patch.ErrUnprocessable} {
		text = strings.TrimPrefix(text, kind.Error()+": ")
	}
	return errors.New(text)
}
