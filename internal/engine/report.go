package engine

import (
	"context"
	"time"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// reporter is the field manager of the status that the server itself writes, as in the reference.
const reporter = "kube-apiserver"

// guards is the store resource of guards (Report.Guard). Only the revision of such a key counts, not its bytes.
const guards = "plinth/guards"

// report sets the server's own part of the status of the object, if the type has one: a CustomResourceDefinition is
// accepted, or its names are taken. It is part of the same commit, so no reader sees the object without it. In the
// reference a controller writes the status after the create: clients have to wait for it, and can read a definition
// that is neither accepted nor refused.
//
// A report may depend on other objects: the names of a definition are accepted only if no other definition has them.
// Two concurrent commits could both find that a name is free. So all commits whose reports depend on each other also
// write one key, their guard, on the condition that it has not changed since the report was computed:
//
//	two commits with the same guard are sequenced  ⇒  the report of the second saw the first
//
// The guard serializes only the writes of definitions of one group: of two concurrent ones, the second computes its
// report again.
func (d *draft) report(ctx context.Context) error {
	r := d.rq.Resource
	if r.Report == nil {
		return nil
	}
	obj := d.obj
	// If this write removes the object, the report is that of a removal.
	if d.removes() {
		obj = object.Nil
	}
	said, err := d.guardedReport(ctx, obj)
	if err != nil {
		return err
	}
	d.effects.others = nil
	if !said.Status.IsNull() && !obj.IsNull() {
		if d.obj, err = r.withStatus(d.obj, said.Status, d.now); err != nil {
			return err
		}
		// The object has changed after settle, so it is settled again.
		d.stored, d.stable = r.Schema().SettleFrom(d.obj, d.form)
	}
	for _, other := range said.Others {
		o, err := d.reported(ctx, r, other)
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

// guardedReport computes the report twice: the first time only to get the name of the guard. Then it reads the guard's
// revision and computes the report again: the report sees every change before that read, and every change after it
// moves the guard and makes the commit fail. If the second report names another guard, the same is repeated with that
// one.
func (d *draft) guardedReport(ctx context.Context, obj object.Value) (Report, error) {
	d.effects.guard = nil
	for {
		said := d.rq.Resource.Report(obj, d.old, d.now)
		key := store.Key{Resource: guards, Name: said.Guard}
		if said.Guard == "" || d.effects.guard != nil && d.effects.guard.pre.Key == key {
			return said, nil
		}
		change := store.Change{Key: key, Data: []byte{'0'}, Sidecar: &store.Sidecar{}}
		d.effects.guard = &guard{pre: store.Absent(key), change: change}
		live, _, err := d.store.Live(ctx, key, true)
		if err != nil {
			return Report{}, commitFailed(err)
		}
		if live != nil {
			d.effects.guard.pre = store.At(live)
		}
	}
}

// reported is the draft of another object whose status changes with this one: a definition that gets the name that this
// one gives up, or the budget of an eviction. It is committed on the condition that its version is still live. Of the
// steps it takes settle and print alone: admission and validation are for writes of clients.
func (d *draft) reported(ctx context.Context, r *Resource, other ReportedOther) (*draft, error) {
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
		Manager: reporter, APIVersion: r.APIVersion(), Subresource: "status", Now: now.UTC().Format(time.RFC3339),
	})
}
