package engine

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// maxManager is the longest manager name, in bytes, that is made from a User-Agent.
const maxManager = 128

// manager is the name of the request's field manager (SSA-6): the one in the URL, or the User-Agent up to its first
// "/", without characters that cannot be printed, and cut between characters.
func (rq *Request) manager() string {
	if rq.FieldManager != "" {
		return rq.FieldManager
	}
	agent, _, _ := strings.Cut(rq.UserAgent, "/")
	name := make([]byte, 0, len(agent))
	for _, r := range agent {
		if !unicode.IsPrint(r) {
			continue
		}
		if len(name)+utf8.RuneLen(r) > maxManager {
			break
		}
		name = utf8.AppendRune(name, r)
	}
	return string(name)
}

// Ownership is computed by package merge, which works on values and schemas alone. This file derives its arguments from
// a request and its type: the name of the manager, the schema, the fields that a write cannot change, and the other
// versions of the kind.
//
// Which function records the owners of a write:
//
//	PUT, POST, patches        own → Kind.Update(old, obj)      changed fields go to the writer
//	apply                     merge → Kind.Apply(live, intent) fields of the intent go to the applier
//	any of them at /scale     ownScale, merge                  the same on Scales, with translated paths
//	a status by the server    withStatus (serverstatus.go)           changed fields go to kube-apiserver

// merging is the kind as package merge needs it, for the version and subresource of the request: its schema, the
// fields that a write at this URL cannot change and so does not own, and the conversion of older managers' field sets
// if there are several versions.
func (rq *Request) merging(ctx context.Context) *merge.Kind {
	r := rq.Resource
	k := &merge.Kind{Type: r.Schema(), Reset: r.Resets}
	if rq.Subresource != nil {
		k.Reset = rq.Subresource.Resets
	}
	if len(r.Stored.Versions) > 1 {
		k.Versions = versions{ctx, r.Stored}
	}
	return k
}

// versions are the versions of one kind, for merges of objects whose managers wrote in different versions (SSA-11). A
// manager's field set is recorded in the version in which it wrote, and only an object of that version has those
// fields.
type versions struct {
	// The context of the request: a conversion may call a webhook, and package merge has no contexts.
	ctx  context.Context
	kind *Kind
}

// Type is the schema of a version; nil if the kind no longer has it.
func (v versions) Type(apiVersion string) *schema.Type {
	if version := v.kind.Version(apiVersion); version != nil {
		return version.Schema()
	}
	return nil
}

// Convert converts an object to a version.
func (v versions) Convert(obj object.Value, apiVersion string) (object.Value, error) {
	version := v.kind.Version(apiVersion)
	if version == nil {
		return obj, nil
	}
	return v.kind.convert(v.ctx, obj, version)
}

// ownScale is own for the scale subresource (SSA-14). The body is a Scale, while managers are recorded at the object,
// whose field for the number of replicas may have another path. So the managers of the object are translated to paths
// of the Scale (ToScale), the update is compared there, and the result is translated back (FromScale):
//
//	an update of /scale changes ownership of the replicas field alone
//
// An example: a custom type has the specReplicasPath .spec.size, owned by "kubectl", and an autoscaler PUTs 5 to
// /scale:
//
//	managers of the object   kubectl {f:spec {f:size, f:image}}
//	of the Scale, before     kubectl {f:spec {f:replicas}}
//	of the Scale, after      autoscaler (through /scale) {f:spec {f:replicas}}
//	of the object, after     kubectl {f:spec {f:image}}, autoscaler (through /scale) {f:spec {f:size}}
//
// With an error it returns the object with the managers as they were.
func (d *draft) ownScale() (object.Value, error) {
	managed := d.old.At("metadata", "managedFields")
	live, err := d.rq.scaleWithManagers(d.old)
	if err != nil {
		return withManagers(d.body, managed), err
	}
	written, err := d.rq.mergingScale().Update(live, d.body, d.writer())
	if err != nil {
		return withManagers(d.body, managed), err
	}
	back, err := d.rq.Subresource.Replicas.FromScale(managed, written.At("metadata", "managedFields"),
		d.rq.Resource.APIVersion())
	if err != nil {
		return withManagers(d.body, managed), err
	}
	return withManagers(d.body, back), nil
}

// mergingScale is merging for Scales: they have one version, and every field can be written.
func (rq *Request) mergingScale() *merge.Kind { return &merge.Kind{Type: rq.Subresource.Schema()} }

// scaleWithManagers is the Scale of an object, with the managers that own a part of it.
func (rq *Request) scaleWithManagers(old object.Value) (object.Value, error) {
	live, err := rq.base()(old)
	if err != nil {
		return object.Nil, err
	}
	if rq.Subresource.Base != nil {
		// The object has no number of replicas, and Base filled in a default. A default has no owner, so it must not take
		// part in the comparison.
		if _, err := rq.Subresource.Represent(old); err != nil {
			live = live.WithoutAt("spec", "replicas")
		}
	}
	managed, err := rq.Subresource.Replicas.ToScale(old.At("metadata", "managedFields"))
	if err != nil {
		return object.Nil, err
	}
	return withManagers(live, managed), nil
}

// withManagers is an object with these managedFields, and without the field if there are none.
func withManagers(obj, managed object.Value) object.Value {
	if managed.Len() == 0 {
		return obj.WithoutAt("metadata", "managedFields")
	}
	return obj.WithAt(managed, "metadata", "managedFields")
}

// onlyTimes says whether only the times of managers have changed (SSA-16). The managers are compared first: in most
// writes they are equal, or differ in more than their times, and the objects need not be compared.
func onlyTimes(obj, old object.Value) bool {
	now, before := obj.At("metadata", "managedFields"), old.At("metadata", "managedFields")
	if now.Len() == 0 || now.Len() != before.Len() || object.Equal(now, before) {
		return false
	}
	// Everything but the time has to be equal, entry by entry.
	for i, entry := range now.Items() {
		if !object.Equal(entry.Without("time"), before.Items()[i].Without("time")) {
			return false
		}
	}
	return object.Equal(obj.WithAt(before, "metadata", "managedFields"), old)
}
