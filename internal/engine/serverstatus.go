package engine

import (
	"context"
	"time"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// serverManager is the field manager of the status that the server itself writes, as in the reference.
const serverManager = "kube-apiserver"

// guards is the store resource of guards (ServerStatus.Guard, Attributes.Move). Only the revision of such a key counts,
// not its bytes.
const guards = "plinth/guards"

// setStatus sets the server's own part of the status of the object, if the type has one: a CustomResourceDefinition is
// accepted, or its names are taken. It is part of the same commit, so no reader sees the object without it. In the
// reference a controller writes the status after the create: clients have to wait for it, and can read a definition
// that is neither accepted nor refused.
//
// This part may depend on other objects: the names of a definition are accepted only if no other definition has them.
// Two concurrent commits could both find that a name is free. So all commits whose status depends on each other also
// write one key, their guard, on the condition that it has not changed since the status was computed:
//
//	two commits with the same guard are sequenced  ⇒  the status of the second takes the first into account
//
// The guard serializes only the writes of definitions of one group: of two concurrent ones, the second computes its
// status again.
func (d *draft) setStatus(ctx context.Context) error {
	r := d.rq.Resource
	if r.ServerStatus == nil {
		return nil
	}
	obj := d.obj
	// If this write removes the object, the status is that for a removal.
	if d.removes() {
		obj = object.Nil
	}
	computed, err := d.guardedStatus(ctx, obj)
	if err != nil {
		return err
	}
	d.effects.others = nil
	if !computed.Status.IsNull() && !obj.IsNull() {
		if d.obj, err = r.withStatus(d.obj, computed.Status, d.now); err != nil {
			return err
		}
		// The object has changed after settle, so it is settled again.
		d.stored, d.stable = r.Schema().SettleFrom(d.obj, d.form)
	}
	for _, other := range computed.Others {
		o, err := d.otherStatus(ctx, r, other)
		if err != nil {
			return err
		}
		d.effects.others = append(d.effects.others, o)
	}
	return nil
}

// guard is a write to the key of a guard, and the precondition that the key has not changed since it was read.
type guard struct {
	pre    store.Precondition
	change store.Change
}

// guardedStatus computes the status twice: the first time only to get the name of the guard. Then it reads the guard's
// revision and computes the status again: the status depends on every change before that read, and every change after
// it moves the guard and makes the commit fail. If the second status names another guard, the same is repeated with
// that one.
func (d *draft) guardedStatus(ctx context.Context, obj object.Value) (_ ServerStatus, err error) {
	d.effects.guard = nil
	for {
		computed := d.rq.Resource.ServerStatus(obj, d.old, d.now)
		if computed.Refused != nil {
			return ServerStatus{}, computed.Refused
		}
		key := store.Key{Resource: guards, Name: computed.Guard}
		if computed.Guard == "" || d.effects.guard != nil && d.effects.guard.pre.Key == key {
			return computed, nil
		}
		if d.effects.guard, err = readGuard(ctx, d.store, computed.Guard, true); err != nil {
			return ServerStatus{}, err
		}
	}
}

// readGuard reads a guard: the newest one, with sure.
func readGuard(ctx context.Context, s *store.Store, name string, sure bool) (*guard, error) {
	key := store.Key{Resource: guards, Name: name}
	g := &guard{store.Absent(key), store.Change{Key: key, Data: []byte{'0'}, Sidecar: &store.Sidecar{}}}
	live, _, err := s.Live(ctx, key, sure)
	if err != nil {
		return nil, commitFailed(err)
	}
	if live != nil {
		g.pre = store.At(live)
	}
	return g, nil
}

// reported is the draft of another object whose status changes with this one: a definition that gets the name that this
// one gives up, or the budget of an eviction. It is committed on the condition that its version is still live. Of the
// steps it takes settle and print alone: admission and validation are for writes of clients.
func (d *draft) otherStatus(ctx context.Context, r *Resource, other StatusOfOther) (*draft, error) {
	rq := &Request{Resource: r, User: d.rq.User}
	rq.Namespace, rq.Name = splitKey(other.Version.Key.Name)
	n := d.beside(rq)
	n.live = other.Version
	var err error
	if n.old, _, err = rq.Resource.live(ctx, n.live); err != nil {
		return nil, err
	}
	if n.obj, err = rq.Resource.withStatus(n.old, other.Status, d.now); err != nil {
		return nil, err
	}
	n.settle()
	return n, n.print(ctx)
}

// withStatus gives an object a status that the server has computed; the server becomes the owner of the fields that
// changed. An equal status leaves the object and its managers as they are.
func (r *Resource) withStatus(obj, status object.Value, now time.Time) (object.Value, error) {
	if object.Equal(obj.At("status"), status) {
		return obj, nil
	}
	k := merge.Kind{Type: r.Schema()}
	if sub := r.Subresource("status"); sub != nil {
		k.Reset = sub.Resets
	}
	return k.Update(obj, obj.With("status", status), merge.Writer{
		Manager: serverManager, APIVersion: r.APIVersion(), Subresource: "status", Now: now.UTC().Format(time.RFC3339),
	})
}
