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

// Reviewed is the AdmissionRequest that a webhook gets. Its UID is that of the call.
func (q *Question) Reviewed(uid string) object.Value { return q.reviewed(q.Type, uid) }

// ReviewedIn is the AdmissionRequest that expressions see: without its objects and without a UID. in is the type that
// it names as its resource.
func (q *Question) ReviewedIn(in *engine.Resource) object.Value { return q.reviewed(in, "") }

// reviewed is an AdmissionRequest. It has the objects if it has a UID. Its members are in byte order, so that MapOf
// need not sort them.
func (q *Question) reviewed(in *engine.Resource, uid string) object.Value {
	asked, sub := q.Request.Resource, subresourceOf(q.Attributes)
	kind, resource := kindOf(q.Type, sub), resourceOf(in)
	requestKind, requestResource := kind, resource
	if asked != q.Type {
		requestKind = kindOf(asked, sub)
	}
	if asked != in {
		requestResource = resourceOf(asked)
	}
	m := make(members, 0, 15)
	m.set("dryRun", object.BoolOf(q.DryRun))
	m.set("kind", kind)
	m.text("name", q.Name)
	m.text("namespace", NamespaceOf(q.Attributes))
	if uid != "" {
		m.set("object", q.Now)
		m.set("oldObject", q.Before)
	}
	m.text("operation", q.Operation.String())
	m.set("options", q.Options())
	m.set("requestKind", requestKind)
	m.set("requestResource", requestResource)
	m.text("requestSubResource", sub)
	m.set("resource", resource)
	m.text("subResource", sub)
	m.text("uid", uid)
	m.set("userInfo", userInfo(q.Attributes))
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
	return object.MapOf(object.Member{Key: "group", Value: object.StringOf(group)},
		object.Member{Key: "kind", Value: object.StringOf(kind)},
		object.Member{Key: "version", Value: object.StringOf(version)})
}

func resourceOf(r *engine.Resource) object.Value {
	return object.MapOf(object.Member{Key: "group", Value: object.StringOf(r.Group)},
		object.Member{Key: "resource", Value: object.StringOf(r.Name)},
		object.Member{Key: "version", Value: object.StringOf(r.Version)})
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

// PatchError is an error of a JSON Patch that cannot be applied, as the reference words it: without its kind.
func PatchError(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), patch.ErrUnprocessable.Error()+": "))
}
