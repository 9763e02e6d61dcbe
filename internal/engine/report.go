package engine

import (
	"context"
	"time"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// reporter is the manager of what the server itself says of objects, in their status, as in the reference.
const reporter = "kube-apiserver"

// guards is the store resource of guards (Report.Guard). Only that somebody has changed one counts, never what is in it.
const guards = "plinth/guards"

// report is what the server itself says of the object, where the type has something to say: it stands in the status, and is part of
// the same commit. So nobody sees the object without it, and no controller has to come after the write.
//
// Where a report depends on other objects, two commits that do not know of each other could contradict one another: both take the
// same free name. So commits that depend on each other change one key, their guard, and each demands that nobody has changed it since
// the report began.
func (d *draft) report(ctx context.Context) error {
	r := d.rq.Resource
	if r.Report == nil {
		return nil
	}
	obj := d.obj
	if d.removes() {
		obj = object.Nil
	}
	said, err := d.guardedReport(ctx, obj)
	if err != nil {
		return err
	}
	d.others = nil
	if !said.Status.IsNull() && !obj.IsNull() {
		if d.obj, err = r.withStatus(d.obj, said.Status, d.now); err != nil {
			return err
		}
		d.stored, d.stable = r.Schema().SettleFrom(d.obj, d.form)
	}
	for _, other := range said.Others {
		o, err := d.reported(ctx, r, other)
		if err != nil {
			return err
		}
		d.others = append(d.others, o)
	}
	return nil
}

// guard is a key that commits change which must not come between the report of another one and its commit.
type guard struct {
	pre    store.Precondition
	change store.Change
}

// guardedReport asks for the report: once to learn the guard, which has to be read first, and then for good.
func (d *draft) guardedReport(ctx context.Context, obj object.Value) (Report, error) {
	d.guard = nil
	for {
		said := d.rq.Resource.Report(obj, d.old, d.now)
		key := store.Key{Resource: guards, Name: said.Guard}
		if said.Guard == "" || d.guard != nil && d.guard.pre.Key == key {
			return said, nil
		}
		d.guard = &guard{pre: store.Absent(key), change: store.Change{Key: key, Data: []byte{'0'}, Sidecar: &store.Sidecar{}}}
		live, _, err := d.store.Live(ctx, key, true)
		if err != nil {
			return Report{}, commitFailed(err)
		}
		if live != nil {
			d.guard.pre = store.At(live)
		}
	}
}

// reported is the draft of an object whose status changes with that of another one.
func (d *draft) reported(ctx context.Context, r *Resource, other ReportedOther) (*draft, error) {
	rq := &Request{Resource: r, User: d.rq.User}
	rq.Namespace, rq.Name = splitKey(other.Version.Key.Name)
	n := &draft{Engine: d.Engine, rq: rq, dry: d.dry, now: d.now, live: other.Version, told: d.told}
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

// withStatus gives an object a status that the server itself has made, and notes that the server owns what has changed.
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
