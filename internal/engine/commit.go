package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// effects is what the commit of a draft consists of and depends on besides the object itself. Each step that adds to
// it replaces what it has added before, so that it can be repeated after a lost race.
type effects struct {
	// namespace and definition are the objects without which this one cannot be created; nil: it needs none.
	// inNamespace: admission requires the namespace.
	namespace, definition *store.Version
	inNamespace           bool
	// limits are those of the namespace that the commit has to stay within; nil: there are none. limit makes them again.
	// records are the drafts of the objects that record it, where the store does not judge limits, and unmoved is then the
	// condition that nobody has taken that back, which the guard of that name says.
	limits     *store.Limits
	records    []*draft
	unmoved    *store.Precondition
	limit      func(context.Context) (*Limits, error)
	limitGuard string
	// others are drafts of other objects whose status changes in the same commit, and guard is the change to a key that
	// is not an object; see setStatus and evicted.
	others []*draft
	guard  *guard
	// allocation has the values that were allocated to the object, and claimed the claims that the commit takes and gives
	// back because of them (claim.go). renewed is the version that replaces a removed companion; nil: none does. holder
	// is then the condition that the object to which the companion refers is as it was read; nil: there is none.
	allocation *Allocation
	claimed    *claimed
	renewed    *store.Version
	holder     *store.Precondition
}

// transaction is what one commit consists of: all of it is applied, or none.
//
//	∀ change: there is a precondition on its key     no key changes twice     (assertAtomic)
//
// All preconditions are checked at one point in the order of commits, so a reader sees all of the changes or none.
type transaction struct {
	// drafts are the objects that change. Those of a dry run change nothing.
	drafts []*draft
	// fences are preconditions of objects that do not change; keys are changes of keys that are no objects (claims,
	// guards), each with its precondition in pre.
	fences []store.Precondition
	pre    []store.Precondition
	keys   []store.Change
	// records are those of drafts that record what the others use. What is recorded before them is theirs on the
	// conditions of unmoved.
	records []*draft
	unmoved []store.Precondition
	// doubtful says that the commit has failed, and may still be written.
	doubtful bool
}

// transaction returns the transaction of one draft with all of its effects.
func (d *draft) transaction() *transaction {
	t := &transaction{}
	t.add(d)
	return t
}

// add adds a draft with its effects.
func (t *transaction) add(d *draft) {
	e := &d.effects
	t.drafts = append(append(append(t.drafts, d), e.records...), e.others...)
	if t.records = append(t.records, e.records...); e.unmoved != nil {
		t.unmoved = append(t.unmoved, *e.unmoved)
	}
	for _, parent := range []*store.Version{e.namespace, e.definition} {
		if parent != nil && d.first == nil { // what is in another store cannot be a fence (elsewhere.go)
			t.fences = append(t.fences, store.Fence(parent))
		}
	}
	// Every write of a custom object depends on its definition, by UID (EXT-3): a create by the fence above, any other
	// write here. That the live version is unchanged does not imply that the definition is the same, as a definition whose
	// finalizer was taken away leaves its objects behind.
	if k := d.rq.Resource.Stored; d.live != nil && k.Definition != (store.Key{}) {
		t.fences = append(t.fences, store.Identity(k.Definition, k.DefinitionUID))
	}
	if e.holder != nil {
		t.fences = append(t.fences, *e.holder)
	}
	if e.limits != nil {
		t.fences = append(t.fences, store.Within(e.limits))
	}
	if e.guard != nil && !d.dry {
		t.pre, t.keys = append(t.pre, e.guard.pre), append(t.keys, e.guard.change)
	}
	if c := e.claimed; c != nil {
		t.drafts = append(t.drafts, c.companions...)
		t.pre, t.keys = append(t.pre, c.pre...), append(t.keys, c.changes...)
	}
}

// commit gives a transaction to the store, on the condition that the state on which each of its drafts was decided
// still holds. If it does not, the error is the store's *store.ConflictError, and the verb decides how to go on
// (draft.again, draft.create).
//
//	committed(d) > revision(d.live)
//
// The changes of drafts are first, in the order of drafts, so the i-th draft that is written has the revision of change
// i (store.Revisions). On a store that numbers changes that is a revision of its own, so a watch that ends between two
// of them can be resumed with the second.
//
// Every verb relies on commit to leave out the changes of a dry run (DRY-1): only the name of a new object is checked
// for being free. Other code reads the flag where a dry run claims nothing or has another response.
func (e *Engine) commit(ctx context.Context, t *transaction) error {
	if err := ctx.Err(); err != nil { // the store, which would say so, is not asked by most dry runs
		return commitFailed(err)
	}
	before, after := t.split()
	for i, d := range before {
		if err := d.commitOnce(ctx, &transaction{drafts: []*draft{d}}); err != nil {
			takeBack(ctx, before[:i])
			return err
		}
		if d.live == nil && !d.dry && d.store == e.store {
			t.pre = append(t.pre, store.Precondition{Key: d.key(), Revision: d.committed})
		}
		if slices.Contains(t.records, d) {
			t.fences, t.unmoved = append(t.fences, t.unmoved...), nil
		}
	}
	if err := e.commitOnce(ctx, t); err != nil {
		if !t.doubtful {
			takeBack(ctx, before)
		}
		return err
	}
	for _, d := range after {
		// What is left behind is found by those who look for it (split); the write itself has succeeded.
		_ = d.commitOnce(ctx, &transaction{drafts: []*draft{d}})
	}
	return nil
}

// split takes those drafts out of a transaction that the store does not commit together with the others, because they
// are of the same resource: the second address of a Service, definitions that get a name which this one gives up; or
// because they are in another store. They are committed one by one, in the order of the reference, which has a
// transaction for each object:
//
//	what the object takes   before it    a crash in between leaves a claim without an object, or a quota that counts more
//	everything else         after it     leaves a claim of an object that is gone, or a status that is out of date
//
// Both are harmless until they are repaired: claims by the controllers that compare them with their objects, the status
// of a definition by its next write, or at the next start of a server.
//
// An object may not be written once its claim is gone, whoever removes that: somebody else may have it by then.
//
//	in every state: o was written with the claim c  ⇒  the key of c had not changed since it was committed for o
//
// So what is committed before the object becomes a precondition of it. That the repair waits for a minute before it
// takes a claim without an object for left over is not enough: a commit may stand still for longer on its way to etcd,
// and the minute is measured by the clock of another server. And a claim is taken back only if the object certainly
// will not be written (doubtful): it may have been already.
func (t *transaction) split() (before, after []*draft) {
	apart := func(a, b *draft) bool { return a.store != b.store || !a.store.Atomic(a.key(), b.key()) }
	kept := t.drafts[:0:0]
	for i, d := range t.drafts {
		switch {
		case i == 0 || !slices.ContainsFunc(kept, func(k *draft) bool { return apart(k, d) }):
			kept = append(kept, d)
		case d.live == nil || slices.Contains(t.records, d):
			before = append(before, d)
		default:
			after = append(after, d)
		}
	}
	t.drafts = kept
	return before, after
}

// takeBack removes objects that were committed for another one which then was not. It does what it can: an object that
// cannot be removed now is repaired like one that a crash leaves.
func takeBack(ctx context.Context, committed []*draft) {
	for _, d := range committed {
		if d.dry || d.live != nil {
			continue
		}
		pre := []store.Precondition{{Key: d.key(), Revision: d.committed}}
		_, _ = d.store.Commit(context.WithoutCancel(ctx), append(pre, d.ofTerm(ctx)...), []store.Change{{Key: d.key()}})
	}
}

// commitOnce is commit of what the store commits together.
func (e *Engine) commitOnce(ctx context.Context, t *transaction) error {
	pre := make([]store.Precondition, 0, len(t.fences)+len(t.drafts)+len(t.pre))
	changes := make([]store.Change, 0, len(t.drafts)+len(t.keys))
	var rehearsed []store.Change
	for _, d := range t.drafts {
		if d.dry {
			if err := d.rehearse(ctx); err != nil {
				return err
			}
			if d.store == e.store {
				rehearsed = append(rehearsed, d.storeChange())
			}
			continue
		}
		if invariants.Enabled {
			d.assertCommit()
		}
		// From here on the outcome may be unknown: a commit that failed with an error other than a conflict may have been
		// written. The verb must not begin again (draft.again).
		d.tried = true
		pre = append(pre, store.Precondition{Key: d.key(), Revision: d.revision()})
		change := d.storeChange()
		if begin := d.rq.Resource.Begin; begin != nil && d.live == nil {
			var err error
			if change.Begin, err = begin(ctx, d.next); err != nil {
				return err
			}
		}
		changes = append(changes, change)
	}
	if len(rehearsed) > 0 {
		if err := e.store.Allows(rehearsed); err != nil {
			return t.refusedBy(err)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	pre = append(append(append(pre, t.fences...), t.pre...), e.ofTerm(ctx)...)
	changes = append(changes, t.keys...)
	begins := t.drafts[0].rq.Term
	if begins != nil {
		first, change, err := begins.begin(ctx, e.store)
		if err != nil {
			return commitFailed(err)
		}
		pre, changes = append(pre, first), append(changes, change)
	}
	changes[0].By = t.drafts[0].rq.attribution()
	if invariants.Enabled {
		assertAtomic(pre, changes)
	}
	revisions, err := e.store.Commit(ctx, pre, changes)
	if err != nil {
		t.doubtful = mayBeWritten(err)
		if conflict := (*store.ConflictError)(nil); errors.As(err, &conflict) {
			if conflict.Type == store.ThisObject { // no race: the definition of the request's type never comes back
				return errOtherDefinition
			}
			if conflict.Key.Resource == terms && begins == nil {
				return errTermOver
			}
			return conflict
		}
		return t.refusedBy(err)
	}
	if begins != nil {
		begins.revision = revisions.Of(len(changes) - 1)
	}
	written := 0
	for _, d := range t.drafts {
		if !d.dry {
			d.committed = revisions.Of(written)
			written++
			if invariants.Enabled {
				assert(d.committed > d.revision(), "%s of revision %d is replaced at %d", d.key(), d.revision(), d.committed)
			}
		}
	}
	return nil
}

// mayBeWritten says whether a commit that failed with an error of the store may turn out to have been written.
func mayBeWritten(err error) bool {
	switch {
	case errors.As(err, new(*store.ConflictError)), errors.As(err, new(*store.OverError)),
		errors.As(err, new(*store.BoundsError)):
		return false
	}
	for _, sure := range []error{store.ErrClosed, store.ErrNoRoom, store.ErrReadOnly, store.ErrNoPlane} {
		if errors.Is(err, sure) {
			return false
		}
	}
	return true
}

// attribution is what the store keeps of who makes a request.
func (rq *Request) attribution() []byte {
	by := store.Attribution{User: rq.User.Name, Impersonator: rq.Impersonator, Manager: rq.manager(), Verb: rq.Verb,
		AuditID: rq.AuditID}
	if rq.Subresource != nil {
		by.Subresource = rq.Subresource.Name
	}
	return by.Encode()
}

// errOtherDefinition ends a write to a type whose definition does not exist any more: 404, for the type and not for the
// object (EXT-3).
var errOtherDefinition error = apierr.NewNoSuchPath()

// refusedBy is the error of a transaction that the store has refused, by no race.
func (t *transaction) refusedBy(err error) error {
	first := t.drafts[0]
	of := first.rq.Resource
	kind, name := of.Type(), strings.TrimPrefix(first.key().Name, of.prefix(first.rq.Namespace))
	switch over := (*store.BoundsError)(nil); {
	case errors.As(err, &over), errors.Is(err, store.ErrReadOnly):
		return apierr.NewForbidden(kind, name, strings.TrimPrefix(err.Error(), "store: "))
	case errors.Is(err, store.ErrNoPlane): // the plane to begin with has ended meanwhile
		return apierr.NewConflict(kind, name, "the plane to begin with does not exist any more")
	}
	return refused(err)
}

// storeChange is the change of the draft's own key.
func (d *draft) storeChange() store.Change {
	change := store.Change{Key: d.key()}
	switch renewed := d.effects.renewed; {
	case !d.remove:
		change.Data, change.Sidecar = d.next.Data(), d.next.Sidecar
	case renewed != nil:
		change.Data, change.Sidecar = renewed.Data(), renewed.Sidecar
	}
	return change
}

// rehearse is the commit of a dry run. It does not check that the live version is still the one that was read: the
// answer of a dry run is the result that a write would have had at the time of that read. A create is checked for a
// free name, against the newest state, because the client of such a dry run needs to know about "already exists". It
// reports a taken name as the store does, so that the verb tries another generated name or becomes an update, as for a
// write.
func (d *draft) rehearse(ctx context.Context) error {
	if d.live != nil {
		return nil
	}
	taken, _, err := d.store.Live(ctx, d.key(), true)
	if err != nil {
		return commitFailed(err)
	}
	if taken != nil {
		return &store.ConflictError{Key: d.key(), Have: taken.Revision}
	}
	return nil
}

// revision is the revision of the live version, and 0 if there is none; as a precondition, 0 means that the key is
// absent.
func (d *draft) revision() int64 { return revisionOf(d.live) }

// revisionOf is the revision of a version, 0 for nil.
func revisionOf(v *store.Version) int64 {
	if v == nil {
		return 0
	}
	return v.Revision
}

// commitFailed is the API error for an error of the store that is not a lost race. The end of the request's context is
// a time-out (504), after which the write may still become durable: the client has to check. A store that takes no
// writes, because its log failed or because it is shut down, is 503, so that clients try another server. A write of
// which etcd has not said whether it was carried out is 500, as in the reference: the client has to check, too. A full
// disk is 500, as with a full etcd, and the client learns nothing of the directory.
func commitFailed(err error) error {
	switch {
	case errors.Is(err, store.ErrUnknown):
		return apierr.NewInternal(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierr.NewTimeout("request did not complete within the allotted timeout")
	case errors.Is(err, store.ErrClosed):
		return apierr.NewUnavailable("the store takes no writes: " + err.Error())
	}
	if errors.Is(err, store.ErrNoRoom) {
		err = errors.New("nothing was written, as the disk of the server is full")
	}
	return apierr.NewInternal(err)
}

// lost returns the key at which a commit lost a race, and whether that is why it failed. commit returns such an error
// unwrapped, and nothing between it and the verb wraps it.
func lost(err error) (key store.Key, ok bool) {
	if conflict, ok := err.(*store.ConflictError); ok {
		return conflict.Key, true
	}
	return store.Key{}, false
}

// again says whether the verb has to be repeated, given the error with which an attempt ended:
//
//   - after a lost race: another request committed first, so every attempt that is repeated means that another write
//     succeeded. There is no limit on the number of attempts; the context of the request ends them (onto).
//
//   - if the attempt ended without a commit (a refusal, or no change) on a version that may not be the newest, and the
//     newest is another one. Then it sets sure, with which the next attempt reads the newest one, so this happens at
//     most once. If the newest version is the one that the attempt was decided on, its answer stands: repeating it
//     would call webhooks again.
//
//     the answer of a verb is that of a commit, or was decided on a version that is known to be the newest
//
// After an attempt that tried to commit, only a lost race leads to another one: with any other error the commit may
// have been written although it failed.
func (d *draft) again(ctx context.Context, err error, sure *bool) bool {
	if _, raced := lost(err); raced {
		return true
	}
	if d.current || d.tried {
		return false
	}
	newest, _, failed := d.store.Live(ctx, d.rq.key(), true)
	if failed == nil && revisionOf(newest) == d.revision() {
		return false
	}
	// With sure set, the next attempt reads the newest version, or ends with the error of that read.
	*sure = true
	return true
}
