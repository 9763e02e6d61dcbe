package merge

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"plinth/object"
)

// verb is what a step does.
type verb string

const (
	create   verb = "create" // or replace: an update of a missing object creates it
	update   verb = "update"
	apply    verb = "apply"
	scale    verb = "scale"       // an update of the scale subresource
	rescale  verb = "apply-scale" // an apply to it
	reschema verb = "schema"      // changes the schemas of the kind
)

// step is one operation of a history.
type step struct {
	verb        verb
	manager     string
	version     string
	subresource string
	force       bool
	echo        bool // an update sends the live managedFields, like a client that has read the object
	wait        time.Duration
	body        object.Value // without apiVersion, kind and metadata.name
	kind        *kind        // for verb schema
}

// history is a kind and the operations on one object of it.
type history struct {
	kind  *kind
	steps []step
}

// state holds the stored object and the current kind.
type state struct {
	kind *kind
	live object.Value // null if it does not exist yet
}

// do runs one step through an engine. The clock does not advance meanwhile.
func (s *state) do(e engine, op step, now time.Time) outcome {
	if op.verb == reschema {
		s.kind = op.kind
		return outcome{live: s.live, same: true}
	}
	w := write{kind: s.kind, version: op.version, manager: op.manager, subresource: op.subresource,
		force: op.force, now: now}
	if s.kind.version(w.apiVersion()) == nil {
		return outcome{live: s.live, err: &refusal{kind: "not served"}, same: true}
	}
	if op.verb == scale || op.verb == rescale {
		return s.scale(e, op, w)
	}
	body := op.body.With("apiVersion", object.StringOf(w.apiVersion())).With("kind", object.StringOf(s.kind.name)).
		WithAt(object.StringOf("x"), "metadata", "name")
	live := s.live
	if !live.IsNull() {
		converted, err := s.kind.convert(live, w.apiVersion())
		if err != nil {
			return outcome{live: s.live, err: &refusal{kind: "not served"}, same: true}
		}
		live = converted
	}
	var result object.Value
	var err error
	if op.verb == apply {
		result, err = e.Apply(w, live, body)
	} else {
		if op.echo && !live.IsNull() && body.At("metadata", "managedFields").IsNull() {
			body = body.WithAt(live.At("metadata", "managedFields"), "metadata", "managedFields")
		}
		if !live.IsNull() {
			body = body.WithAt(live.At("metadata", "uid"), "metadata", "uid")
		}
		if s.kind.builtin {
			body = s.kind.stored(w, body)
		}
		result, err = e.Update(w, live, body)
	}
	if r := (*refusal)(nil); errors.As(err, &r) && r.kind == untracked {
		o := s.store(w, live, result)
		o.lost = err
		return o
	}
	if err != nil {
		return outcome{live: s.live, err: err, same: true}
	}
	return s.store(w, live, result)
}

// store does what the registry does to an object on its way to storage.
func (s *state) store(w write, live, result object.Value) outcome {
	if s.kind.status {
		switch managed := result.At("metadata", "managedFields"); {
		case w.subresource == "status":
			status, ok := result.Get("status")
			if result = live.Without("status"); ok {
				result = result.With("status", status)
			}
			if result.IsNull() {
				return outcome{live: s.live, err: &refusal{kind: "not found"}, same: true}
			}
			if managed.IsNull() {
				result = result.WithoutAt("metadata", "managedFields")
			} else {
				result = result.WithAt(managed, "metadata", "managedFields")
			}
		default:
			status, ok := live.Get("status")
			if result = result.Without("status"); ok {
				result = result.With("status", status)
			}
		}
	}
	if live.IsNull() {
		result = result.WithAt(object.StringOf("11111111-2222-3333-4444-555555555555"), "metadata", "uid")
	}
	if s.kind.builtin {
		result = s.kind.stored(w, result)
	}
	stored, err := s.kind.convert(result, s.kind.apiVersion(s.kind.versions[0].name))
	if err != nil {
		return outcome{live: s.live, err: &refusal{kind: "not served"}, same: true}
	}
	same := !s.live.IsNull() && bytes.Equal(object.AppendObject(nil, stored), object.AppendObject(nil, s.live))
	s.live = stored
	return outcome{live: stored, same: same}
}

// stored returns an object of a built-in kind after a round trip to storage.
func (k *kind) stored(w write, v object.Value) object.Value {
	t := k.version(w.apiVersion()).typ
	decoded, err := t.Decode(v)
	if err != nil {
		return v
	}
	settled := t.Settle(decoded.Value)
	if managed := v.At("metadata", "managedFields"); managed.Kind() == object.List && managed.Len() == 0 {
		settled = settled.WithAt(managed, "metadata", "managedFields") // an empty list has a meaning in a request
	}
	return settled
}

// scaleKind returns the kind of the scale subresource.
var scaleKind = func() *kind {
	k := &kind{group: "autoscaling", name: "Scale", builtin: true, versions: []*version{{name: "v1"}}}
	k.versions[0].typ = builtinType("autoscaling/v1/Scale")
	k.finish()
	return k
}()

// scale does what the registry does with a write to the scale subresource.
func (s *state) scale(e engine, op step, w write) outcome {
	if s.kind.scale[w.apiVersion()] == "" || s.live.At("spec").Kind() != object.Map {
		return outcome{live: s.live, err: &refusal{kind: "not found"}, same: true}
	}
	live, err := s.kind.convert(s.live, w.apiVersion())
	if err != nil {
		return outcome{live: s.live, err: &refusal{kind: "not served"}, same: true}
	}
	fail := func(err error) outcome { return outcome{live: s.live, err: err, same: true} }
	path := append([]string{"spec"}, strings.Split(s.kind.scale[w.apiVersion()], ".")...)
	entries, err := e.ToScale(w, live.At("metadata", "managedFields"))
	if err != nil {
		return fail(err)
	}
	current := object.Fields("apiVersion", object.StringOf("autoscaling/v1"), "kind", object.StringOf("Scale"),
		"metadata", object.Fields("name", object.StringOf("x"), "uid", live.At("metadata", "uid")),
		"spec", object.MapOf(), "status", object.Fields("replicas", object.IntOf(1)))
	if n := live.At(path...); n.Kind() == object.Int && n.Int() != 0 {
		current = current.WithAt(n, "spec", "replicas")
	}
	if !entries.IsNull() {
		current = current.WithAt(entries, "metadata", "managedFields")
	}
	wish := object.Fields("apiVersion", object.StringOf("autoscaling/v1"), "kind", object.StringOf("Scale"),
		"metadata", object.Fields("name", object.StringOf("x")), "spec", op.body.At("spec"))
	ws := write{kind: scaleKind, version: "v1", manager: op.manager, subresource: "scale", force: op.force, now: w.now}
	var result object.Value
	if op.verb == rescale {
		result, err = e.Apply(ws, current, wish)
	} else {
		result, err = e.Update(ws, current, current.With("spec", wish.At("spec")))
	}
	if r := (*refusal)(nil); err != nil && !(errors.As(err, &r) && r.kind == untracked) {
		return fail(err)
	}
	back, err := e.FromScale(w, live.At("metadata", "managedFields"), result.At("metadata", "managedFields"))
	if err != nil {
		return fail(err)
	}
	changed := live.WithAt(object.IntOf(result.At("spec", "replicas").Int()), path...)
	if back.Len() == 0 {
		changed = changed.WithoutAt("metadata", "managedFields")
	} else {
		changed = changed.WithAt(back, "metadata", "managedFields")
	}
	return s.store(write{kind: s.kind, version: w.version, now: w.now}, live, changed)
}

// String formats the operation as in scenario files.
func (op step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", op.verb, quoted(op.manager), op.version)
	if op.subresource != "" {
		b.WriteString(" /" + op.subresource)
	}
	if op.force {
		b.WriteString(" force")
	}
	if op.echo {
		b.WriteString(" echo")
	}
	if op.wait != 0 {
		b.WriteString(" wait=" + op.wait.String())
	}
	return b.String()
}
