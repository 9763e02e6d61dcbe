package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/worklist"
	"plinth/internal/engine"
	"plinth/object"
)

// collectManager is the field manager of the collector, as in the reference, where it is a part of
// kube-controller-manager.
const collectManager = "kube-controller-manager"

// do executes a task on an object of this server. No backend is asked: if one has to be, the task goes on to the
// worklist of that backend, so that what concerns this server alone never waits for another one.
func (c *collector) do(ctx context.Context, t task, known notes) error {
	err := c.perform(ctx, t, known, false)
	var of *askError
	if errors.As(err, &of) {
		of.work.Add(t, known)
		return nil
	}
	return err
}

// perform executes a task; ask says whether backends may be asked. Each attempt reads the newest version of the object.
func (c *collector) perform(ctx context.Context, t task, known notes, ask bool) (err error) {
	if t.what != examine && c.incomplete() {
		return nil // it is added again when they are
	}
	for range pace.Attempts {
		var obj *taskObject
		if obj, err = c.load(ctx, t.key, t.of); err != nil || obj == nil {
			break
		}
		obj.ask = ask
		switch t.what {
		case examine:
			err = obj.examine(ctx, known)
			if !errors.As(err, new(*askError)) {
				known.references = nil
			}
		case release:
			err = obj.release(ctx)
		case orphan:
			err = obj.orphan(ctx)
		}
		if !apierr.Is(err, apierr.Conflict) && !errors.Is(err, errUnblocked) {
			break
		}
	}
	if apierr.Is(err, apierr.NotFound) { // its deletion follows as a change
		return nil
	}
	return err
}

// taskObject is the object of a task, as it was read.
type taskObject struct {
	*collector
	// of is the type of an object that a backend has. Nil: it is an object of this server, which is o of the type r.
	of *backendType
	r  *engine.Resource
	o  *engine.Object

	head                object.Value
	at                  site
	name, uid, revision string
	apiVersion, kind    string
	ask                 bool // backends may be asked
}

// load reads an object; nil if there is none that can be collected.
func (c *collector) load(ctx context.Context, k engine.Key, of *backendType) (*taskObject, error) {
	if of != nil {
		return of.load(ctx, k)
	}
	o, err := c.Engine.Stored(ctx, k)
	if err != nil || o == nil {
		return nil, err
	}
	r := c.collectable(k.Resource)
	if r == nil || o.Sidecar.Unreadable != nil {
		return nil, nil
	}
	return c.taskObject(r, o)
}

// taskObject returns an object of this server as that of a task.
func (c *collector) taskObject(r *engine.Resource, o *engine.Object) (t *taskObject, err error) {
	rq := r.RequestFor(o.Key)
	t = &taskObject{collector: c, r: r, o: o, at: site{rq.Namespace, r.Namespaced}, name: rq.Name,
		uid: o.Sidecar.UID, revision: strconv.FormatInt(o.Revision, 10), apiVersion: r.APIVersion(), kind: r.Kind}
	t.head, err = engine.HeadOf(o)
	return t, err
}

func (t *taskObject) request() *engine.Request {
	return &engine.Request{Resource: t.r, Namespace: t.at.namespace, Name: t.name, User: t.user,
		FieldManager: collectManager}
}

// examine deletes the object if it is garbage, and otherwise removes the references to owners that are gone. The action
// depends on the owners:
//
//	one stays          remove the references to owners that are gone or wait; keep the object
//	else one waits     delete the object, in the foreground if it has dependents
//	all are gone       delete the object, as its finalizers say, by default in the background
//
// An object is skipped if it is being deleted already, or if it is unknown whether one of its owners is gone.
func (t *taskObject) examine(ctx context.Context, known notes) error {
	refs := references(t.head)
	if len(refs) == 0 || !t.head.At("metadata", "deletionTimestamp").IsNull() {
		return nil
	}
	by := map[ownerState][]reference{}
	var absent []reference
	var failed error
	for _, ref := range refs {
		where, err := t.find(ctx, t.at, ref, known.gone, t.ask)
		if errors.As(err, new(*askError)) {
			return err
		}
		if errors.Is(err, errInNamespace) || err == nil && where == ownerGone {
			absent = append(absent, ref)
		}
		if err != nil && failed == nil {
			failed = err
		}
		by[where] = append(by[where], ref)
	}
	absent = slices.DeleteFunc(absent, func(ref reference) bool { return !slices.Contains(known.references, ref.uid) })
	if len(absent) > 0 {
		if err := t.reportNamespace(ctx, absent); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(failed, errNotServed) || errors.Is(failed, errInNamespace):
		return nil // it is examined again when that changes
	case failed != nil:
		return failed
	case len(by[ownerStays]) > 0:
		away := append(by[ownerGone], by[ownerWaits]...)
		if len(away) == 0 {
			return nil
		}
		return t.forget(ctx, away)
	case len(by[ownerWaits]) > 0 && t.hasDependents():
		return t.deleteInForeground(ctx, refs)
	}
	how := engine.Background
	for _, f := range t.head.At("metadata", "finalizers").Items() {
		switch f.Str() {
		case engine.OrphanFinalizer:
			how = engine.Orphan
		case engine.ForegroundFinalizer:
			how = engine.Foreground
		}
	}
	return t.delete(ctx, how)
}

// hasDependents says whether the object has dependents.
func (t *taskObject) hasDependents() (any bool) {
	t.dependents(t.uid, func(dependent) bool {
		any = true
		return false
	})
	return any
}

// delete deletes the object, on the precondition that it has not changed since it was read.
func (t *taskObject) delete(ctx context.Context, how engine.Propagation) error {
	if t.of != nil {
		return t.of.delete(ctx, t, how)
	}
	if err := t.pace.Wait(ctx); err != nil {
		return err
	}
	_, err := t.Engine.Delete(ctx, t.request(), engine.DeleteOptions{
		PropagationPolicy: string(how), PreconditionUID: t.uid, PreconditionRV: t.revision,
	})
	return err
}

// deleteInForeground deletes the object in the foreground, because an owner waits for it: it is removed after its own
// dependents.
//
// The problem: objects of a cycle that block each other would all wait forever. To search for cycles would need a
// consistent snapshot of the whole graph. But it is enough to look at the next edge: an object with a dependent that
// waits already may close a cycle, and is changed so that it no longer blocks its owners. That holds although workers
// decide concurrently: this function is called only when all owners of an object wait or are gone, so in a cycle each
// object is deleted after its predecessor,
//
//	x is an owner of y ∧ y is deleted here ⇒ x waited before y was examined
//
// and the last one finds a dependent that waits: the first one of the cycle, which a client deleted. (If clients
// delete several objects of one cycle in the foreground, these wait for each other, as in the reference.)
//
// An object that was made not to block is examined again once its owners have been looked at: an owner that waited only
// for this object is gone then; or other finalizers keep it, then the object stays until the owner is gone, and is
// deleted in the background. The reference does the same, as its delete has the precondition that the references have
// not changed.
func (t *taskObject) deleteInForeground(ctx context.Context, refs []reference) error {
	if t.closesCycle(t.uid) && slices.ContainsFunc(refs, func(r reference) bool { return r.blocks }) {
		if err := t.unblock(ctx); err != nil {
			return err
		}
		for _, ref := range refs {
			if err := t.releaseOwner(ctx, ref.uid, t.ask); err != nil {
				return err
			}
		}
		return errUnblocked
	}
	return t.delete(ctx, engine.Foreground)
}

// closesCycle says whether the object with a UID may close a cycle of objects that wait for each other: a dependent of
// it waits.
func (c *collector) closesCycle(uid string) (closes bool) {
	c.dependents(uid, func(d dependent) bool {
		closes = d.waits()
		return !closes
	})
	return closes
}

// errUnblocked means that an object has to be examined again, since it no longer blocks its owners.
var errUnblocked = errors.New("the owners of the object are not blocked by it any more")

// releaseOwner executes the task release of an owner at once, because a dependent no longer blocks it.
func (c *collector) releaseOwner(ctx context.Context, uid string, ask bool) (err error) {
	c.mu.Lock()
	w := c.waiting[uid]
	c.mu.Unlock()
	if w == nil {
		return nil
	}
	if w.of != nil && !ask {
		return &askError{w.of}
	}
	if err = c.perform(ctx, task{release, w.key, w.of}, notes{}, ask); apierr.Is(err, apierr.Conflict) {
		return nil // other clients keep changing it, and each change leads to a release
	}
	return err
}

// unblock sets blockOwnerDeletion to false in all references of the object.
func (t *taskObject) unblock(ctx context.Context) error {
	items := t.head.At("metadata", "ownerReferences").Items()
	owners := make([]object.Value, len(items))
	for i, item := range items {
		if owners[i] = item; item.At("blockOwnerDeletion").Bool() {
			owners[i] = item.With("blockOwnerDeletion", object.BoolOf(false))
		}
	}
	return t.patch(ctx, object.Fields("ownerReferences", object.ListOf(owners...)))
}

// forget removes references from the object.
func (t *taskObject) forget(ctx context.Context, refs []reference) error {
	var kept []object.Value
	items := t.head.At("metadata", "ownerReferences").Items()
	for _, item := range items {
		uid := item.At("uid").Str()
		if !slices.ContainsFunc(refs, func(r reference) bool { return r.uid == uid }) {
			kept = append(kept, item)
		}
	}
	if len(kept) == len(items) {
		return nil
	}
	return t.patch(ctx, object.Fields("ownerReferences", listOrNull(kept)))
}

// finalized removes a finalizer from the object.
func (t *taskObject) finalized(ctx context.Context, finalizer string) error {
	var kept []object.Value
	for _, f := range t.head.At("metadata", "finalizers").Items() {
		if f.Str() != finalizer {
			kept = append(kept, f)
		}
	}
	return t.patch(ctx, object.Fields("finalizers", listOrNull(kept)))
}

func listOrNull(items []object.Value) object.Value {
	if len(items) == 0 {
		return object.Nil
	}
	return object.ListOf(items...)
}

// patch changes metadata of the object, on the precondition that it has not changed since it was read, and makes the
// result the object of the task.
func (t *taskObject) patch(ctx context.Context, metadata object.Value) error {
	metadata = metadata.With("uid", object.StringOf(t.uid)).With("resourceVersion", object.StringOf(t.revision))
	body := object.Fields("metadata", metadata)
	if t.of != nil {
		return t.of.patch(ctx, t, body)
	}
	if err := t.pace.Wait(ctx); err != nil {
		return err
	}
	result, err := t.Engine.Patch(ctx, t.request(), engine.Patch{
		Type: engine.MergePatch, Body: object.AppendJSON(nil, body),
	})
	if err != nil {
		return err
	}
	t.o, t.revision = result.Object, strconv.FormatInt(result.Object.Revision, 10)
	return nil
}

// release removes the finalizer foregroundDeletion from the object if no dependent blocks its deletion.
//
// The problem: a dependent that does not block is deleted with its owner only if it is examined while the owner waits.
// If the finalizer were removed first and another finalizer kept the owner, the owner would keep the dependent too, so
// the result would depend on which worker is first. So these dependents are examined here, before the finalizer is
// removed:
//
//	the finalizer is removed  ⇒  each dependent in the index before that was examined while the object waited,
//	                             was being deleted, or closes a cycle
//
// One that closes a cycle is examined after its owners were released (deleteInForeground).
// A dependent that a backend has was added to the worklist of that backend when the object began to wait. It is not
// examined here, so that the object does not wait for the backend.
func (t *taskObject) release(ctx context.Context) error {
	if waits, _ := finalizing(t.head); !waits || t.blocked(ctx) {
		return nil
	}
	t.dependents(t.uid, func(d dependent) bool {
		if d.of == nil && !d.o.Sidecar.Deleting && !t.closesCycle(d.uid) {
			// An error does not hold back the object: the dependent's own task is tried again.
			if t.ask {
				_ = t.perform(ctx, task{what: examine, key: d.key}, notes{}, true)
			} else {
				_ = t.do(ctx, task{what: examine, key: d.key}, notes{})
			}
		}
		return ctx.Err() == nil
	})
	return t.finalized(ctx, engine.ForegroundFinalizer)
}

// blocked says whether a dependent blocks the deletion of the object.
//
// The problem: it is called whenever a dependent is gone, so checking all dependents each time would take time
// quadratic in their number. So the collector remembers one that blocks, and looks for another one only when that is
// gone. It remembers the last one in the order of the index, as that one is deleted last.
func (t *taskObject) blocked(ctx context.Context) bool {
	if t.backends.block(t.collector, t.uid) {
		return true
	}
	blocks := func(d *engine.Object) bool {
		if d == nil || d.Sidecar.Unreadable != nil || !slices.Contains(d.Sidecar.Owners, t.uid) ||
			t.collectable(d.Key.Resource) == nil {
			return false
		}
		head, err := engine.HeadOf(d)
		return err == nil && slices.ContainsFunc(references(head),
			func(r reference) bool { return r.uid == t.uid && r.blocks })
	}
	t.mu.Lock()
	w := t.waiting[t.uid]
	var last engine.Key
	if w != nil {
		last = w.blocker
	}
	t.mu.Unlock()
	if last != (engine.Key{}) {
		if d, err := t.Engine.Stored(ctx, last); err == nil && blocks(d) {
			return true
		}
	}
	last = engine.Key{}
	t.Engine.Dependents(t.uid, func(d *engine.Object) bool {
		if blocks(d) {
			last = d.Key
		}
		return ctx.Err() == nil
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if w != nil {
		w.blocker = last
	}
	return last != (engine.Key{})
}

// orphan removes the references of all dependents to the object, and then the finalizer orphan from it.
func (t *taskObject) orphan(ctx context.Context) error {
	if _, leaves := finalizing(t.head); !leaves {
		return nil
	}
	done := map[*backendObject]bool{}
	for any := true; any; { // until no dependent was created meanwhile
		any = false
		var asked error
		changes := new(errgroup.Group)
		changes.SetLimit(worklist.AtOnce)
		t.dependents(t.uid, func(d dependent) bool {
			if d.of != nil {
				if !t.ask {
					asked = &askError{d.of}
					return false
				}
				if done[d.other] { // its backend has not told of the change yet
					return true
				}
				done[d.other] = true
			}
			any = true
			changes.Go(func() error { return t.leave(ctx, d) })
			return ctx.Err() == nil
		})
		if err := errors.Join(asked, changes.Wait(), ctx.Err()); err != nil {
			return fmt.Errorf("orphaning dependents: %w", err)
		}
	}
	return t.finalized(ctx, engine.OrphanFinalizer)
}

// leave removes the references of a dependent to the object.
func (t *taskObject) leave(ctx context.Context, d dependent) (err error) {
	for range pace.Attempts {
		var obj *taskObject
		if obj, err = t.load(ctx, d.key, d.of); err == nil {
			if obj == nil {
				return nil
			}
			err = obj.forget(ctx, []reference{{uid: t.uid}})
		}
		if apierr.Is(err, apierr.NotFound) {
			return nil
		}
		if !apierr.Is(err, apierr.Conflict) {
			return err
		}
	}
	return err
}
