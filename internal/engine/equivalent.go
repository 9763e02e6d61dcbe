package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// Admission may look at a request as if it had been sent in another version of its kind, or in another group that
// serves the kind (matchPolicy Equivalent of webhooks and policies): the request for autoscaling/v1 is shown to a
// webhook that is registered for autoscaling/v2, with both objects converted.

// Equivalents returns the other types under which the objects of r are served now, with the subresource of this name if
// it is not "". A type of which nothing is stored has none.
func (t *Types) Equivalents(r *Resource, subresource string) []*Resource {
	if r.Stored == nil {
		return nil
	}
	served := t.kind(r.Stored.Path)
	if served == nil {
		return nil
	}
	var others []*Resource
	for _, other := range served.versions {
		if other != r && (subresource == "" || other.Subresource(subresource) != nil) {
			others = append(others, other)
		}
	}
	return others
}

// Body returns the group, version and kind of what a create or an update of the type, or of its subresource if that is
// not "", has as its body; of a connection, which has no body, its options.
func (r *Resource) Body(subresource string) (group, version, kind string) {
	s := r.Subresource(subresource)
	if s != nil && s.Connection != nil {
		return s.Group, s.Version, s.Kind
	}
	group, version, kind, _ = (&Request{Resource: r, Subresource: s}).bodyType()
	return group, version, kind
}

// In returns what admission sees of the request in the version of another type of the same kind (Types.Equivalents), in
// the form in which clients see it: with the resourceVersion, and without empty fields that are not stored. With the
// type of the request itself nothing is converted.
func (a *Attributes) In(ctx context.Context, r *Resource) (obj, old object.Value, err error) {
	if obj, err = a.shown(ctx, a.Object, r); err != nil {
		return object.Nil, object.Nil, err
	}
	if old, err = a.shown(ctx, a.Old, r); err != nil {
		return object.Nil, object.Nil, err
	}
	d := a.draft
	if d.live == nil || !a.ofObject() {
		return obj, old, nil
	}
	revision := object.StringOf(strconv.FormatInt(d.live.Revision, 10))
	if !old.IsNull() {
		old = old.WithAt(revision, "metadata", "resourceVersion")
	}
	// Mutating admission of a PUT sees the object with what the client has sent.
	if d.puts && d.obj.IsNull() {
		revision = d.asked.At("metadata", "resourceVersion")
	}
	if !obj.IsNull() && !revision.IsNull() {
		obj = obj.WithAt(revision, "metadata", "resourceVersion")
	}
	return obj, old, nil
}

// shown brings an object or body of the request into another version, and into its stored form.
func (a *Attributes) shown(ctx context.Context, v object.Value, r *Resource) (object.Value, error) {
	if v.IsNull() {
		return v, nil
	}
	if a.ofObject() {
		var err error
		if v, err = r.Stored.convert(ctx, v, r.Served); err != nil {
			return object.Nil, err
		}
		return r.Schema().Settle(v), nil
	}
	_, _, _, typ := a.Request.bodyType()
	return typ.Settle(v), nil
}

// ofObject says whether Object is an object of the type that is stored, as at status, and not a body of another kind (a
// Scale, a Binding) or one of a virtual resource.
func (a *Attributes) ofObject() bool {
	r, sub := a.Request.Resource, a.Request.Subresource
	return r.Stored != nil && (sub == nil || sub.Schema == nil ||
		sub.Group == r.Group && sub.Version == r.Version && sub.Kind == r.Kind)
}

// Admitted makes Object from a value that admission has made of before, both in the version of r (In). Fields that the
// type does not have are dropped, or an error if strict, defaults are filled in, and it is converted to the version of
// the request. Other errors mean that it is of another kind, or that a field has another type. changed says whether it
// is another object.
func (a *Attributes) Admitted(ctx context.Context, v, before object.Value, r *Resource, strict bool) (obj object.Value,
	changed bool, err error) {
	in := a.requestIn(r)
	group, version, kind, typ := in.bodyType()
	if r.Written == nil && v.Kind() == object.Map { // a built-in type need not be named
		v = v.Edit([]object.Member{{Key: "kind", Value: cmp.Or(v.At("kind"), object.StringOf(kind))},
			{Key: "apiVersion", Value: cmp.Or(v.At("apiVersion"), object.StringOf(apiVersion(group, version)))}})
	}
	if got := v.At("kind").Str(); got != kind || v.At("apiVersion").Str() != apiVersion(group, version) {
		return object.Nil, false, fmt.Errorf("admission has made a %q of %q from a %s of %s", got,
			v.At("apiVersion").Str(), kind, apiVersion(group, version))
	}
	decoded, err := typ.Decode(v)
	if err != nil {
		return object.Nil, false, err
	}
	if strict && len(decoded.Unknown) > 0 {
		return object.Nil, false, unknownFields(decoded.Unknown)
	}
	changed = !object.Equal(typ.Settle(decoded.Value), before)
	n := draft{input: &input{rq: in}, body: decoded.Value}
	n.fill()
	if obj = n.body; a.ofObject() {
		obj, err = r.Stored.convert(ctx, obj, a.Request.Resource.Served)
	}
	return obj, changed, err
}

// requestIn is the request as one for another type, as far as its body depends on it.
func (a *Attributes) requestIn(r *Resource) *Request {
	in := &Request{Resource: r}
	if sub := a.Request.Subresource; sub != nil {
		in.Subresource = r.Subresource(sub.Name)
	}
	return in
}

// BodySchema is the type of what In returns for r.
func (a *Attributes) BodySchema(r *Resource) *schema.Type {
	_, _, _, typ := a.requestIn(r).bodyType()
	return typ
}

// unknownFields is the error of fields that a type does not have.
func unknownFields(paths []string) error {
	texts := make([]string, len(paths))
	for i, path := range paths {
		texts[i] = fmt.Sprintf("unknown field %q", path)
	}
	return errors.New("strict decoding error: " + strings.Join(texts, ", "))
}
