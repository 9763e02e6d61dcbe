package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"plinth/internal/execution"
	"plinth/internal/stack"
	"plinth/internal/store"
)

// patience is how long the outcome of a transaction is looked for after its answer was lost. Then the caller is told
// that it is not known.
const patience = time.Minute

// transaction is one commit on its way: its changes as etcd gets them.
type transaction struct {
	changes []store.Change
	paths   []string // of the changes, without the prefix
	values  [][]byte // nil: a deletion
	expire  time.Time
	creates bool // the first change is that of a key that is to be absent

	set, cleared []string // names of keys that are bits (Bits); they are not among the changes
}

// Commit is store.Writer.Commit. All changes get one revision: that of the transaction.
//
// From the moment at which a transaction is sent, its outcome has to be found out whether or not somebody waits for it.
// So it is carried out by a goroutine of its own if the caller may stop waiting.
func (w *Writer) Commit(ctx context.Context, pre []store.Precondition, changes []store.Change) (store.Revisions,
	error) {
	if err := ctx.Err(); err != nil {
		return store.Revisions{}, err
	}
	t, err := w.transaction(ctx, changes)
	if err != nil {
		return store.Revisions{}, err
	}
	w.life.RLock()
	if err := w.healthy(); err != nil {
		w.life.RUnlock()
		return store.Revisions{}, err
	}
	w.commits.Add(1)
	w.life.RUnlock()
	var given store.Revisions
	execution.Outside(ctx, func() { given, err = w.commitInTurn(ctx, t, pre) })
	return given, err
}

// commitInTurn is the part of a commit that waits. It calls commits.Done.
func (w *Writer) commitInTurn(ctx context.Context, t *transaction, pre []store.Precondition) (store.Revisions, error) {
	done, err := w.turn(ctx, t)
	if err != nil {
		w.commits.Done()
		return store.Revisions{}, err
	}
	if ctx.Done() == nil {
		defer w.commits.Done()
		defer done()
		return w.commit(t, pre)
	}
	type outcome struct {
		given store.Revisions
		err   error
	}
	found := make(chan outcome, 1)
	go func() {
		stack.Grow() // gRPC takes more than a new goroutine has
		defer w.commits.Done()
		defer done()
		given, err := w.commit(t, pre)
		found <- outcome{given, err}
	}()
	select {
	case o := <-found:
		return o.given, o.err
	case <-ctx.Done():
		return store.Revisions{}, ctx.Err()
	}
}

// transaction encodes the changes of a commit.
func (w *Writer) transaction(ctx context.Context, changes []store.Change) (*transaction, error) {
	changes, set, cleared, err := w.bitsOf(changes)
	if err != nil {
		return nil, err
	}
	t := &transaction{changes: changes, paths: make([]string, len(changes)), values: make([][]byte, len(changes)),
		set: set, cleared: cleared}
	for i := range changes {
		ch := &changes[i]
		var ok bool
		if t.paths[i], ok = w.config.Layout.Path(ch.Key); !ok {
			return nil, fmt.Errorf("etcd: %s has no place there", ch.Key)
		}
		if slices.Contains(t.paths[:i], t.paths[i]) {
			return nil, fmt.Errorf("etcd: commit changes %s twice", ch.Key)
		}
		if ch.Data == nil {
			continue
		}
		if ch.Sidecar == nil {
			ch.Sidecar = w.state.Describe(ch.Key, ch.Data, time.Time{}, 0)
		}
		var err error
		if t.values[i], err = w.encode(ctx, ch); err != nil {
			return nil, err
		}
		if at := ch.Sidecar.Expire; !at.IsZero() && (t.expire.IsZero() || at.Before(t.expire)) {
			t.expire = at
		}
	}
	return t, nil
}

// encode is the value of a change.
func (e *Cluster) encode(ctx context.Context, ch *store.Change) ([]byte, error) {
	plain, err := e.config.Layout.Encode(ch.Key, ch.Data)
	if err != nil || e.config.Sealing == nil || e.whole(ch.Key) != nil {
		return plain, err
	}
	seal, err := e.config.Sealing.Seal(ctx, ch.Key.Resource)
	if err != nil {
		return nil, &store.SealError{Key: ch.Key, Err: err}
	}
	if seal == nil {
		return plain, nil
	}
	ch.Sidecar.SealedBy = seal.ID
	return seal.Append(nil, ch.Key, plain), nil
}

// commit carries out a transaction. Its preconditions become comparisons of revisions: with the one that the caller
// requires, or, for the others (fences, identities), with that of the version for which the precondition was found to
// hold. If etcd refuses, then since some revision is another one. The state is brought up to that, and the
// preconditions are judged again: if one does not hold, that is the answer; if all do, a fence has changed in a way
// that does not matter, and the transaction is sent again.
//
// An answer that is lost leaves three possibilities: the transaction was carried out, it was not, or it still will be.
// So etcd is read until it answers, and the state brought up to that; then either
//
//   - the state has received the changes: the transaction was carried out (received);
//   - or a precondition does not hold any more: it was not, and will not be, as a revision never comes back;
//   - or all hold. Then it is sent again, and whichever of the two is carried out first, the other one is refused.
func (w *Writer) commit(t *transaction, pre []store.Precondition) (store.Revisions, error) {
	sent := w.send(t, pre)
	defer w.forget(t, sent)
	end := time.Now().Add(patience)
	for lost, sure := false, false; ; sure = true {
		a, err := w.compare(t, pre, sure)
		if err != nil {
			if at := w.outcome(sent); lost && at > 0 {
				return store.Revisions{First: at}, nil
			}
			return store.Revisions{}, err
		}
		answer, err := w.execute(t, a)
		switch {
		case err == nil && answer.Succeeded:
			return store.Revisions{First: answer.Header.Revision}, w.arrive(w.ctx, answer.Header.Revision)
		case err == nil:
			// Refused: the next round finds out why.
			if err := w.arrive(w.ctx, answer.Header.Revision); err != nil {
				return store.Revisions{}, err
			}
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			// It ended sooner than its time, with an etcd that was restored: the next attempt has another one.
			w.leases.drop()
		case isTransient(err):
			lost = true
			if failed := w.readAgain(end); failed != nil {
				return store.Revisions{}, fmt.Errorf("etcd: it is not known whether this was written: %w (%w)", err, failed)
			}
		default:
			return store.Revisions{}, refusal(err)
		}
		if at := w.outcome(sent); lost && at > 0 {
			return store.Revisions{First: at}, nil
		}
	}
}

// readAgain brings the state up to etcd's revision at a time after the call, however often etcd has to be asked.
func (w *Writer) readAgain(end time.Time) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		revision, err := w.revision()
		if err == nil {
			return w.arrive(w.ctx, revision)
		}
		if errors.Is(err, store.ErrClosed) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-w.closing:
			return err
		}
	}
}

// compare makes the comparisons of a transaction. It returns the error of the first precondition that does not hold. A
// precondition is refused only on a state that is new enough: with sure set it is, otherwise it is brought up to etcd
// first. What revision a key has, etcd finds out when it compares, so that is judged here only with sure set, except
// for bits: for them etcd compares the bitmap by which they are judged here.
func (w *Writer) compare(t *transaction, pre []store.Precondition, sure bool) (a attempt, err error) {
	for ; ; sure = true {
		if a, err = w.judge(t, pre, sure); err == nil || sure {
			return a, err
		}
		newest, failed := w.revision() // not newest, which refuses once the writer is being closed
		if failed == nil {
			failed = w.arrive(w.ctx, newest)
		}
		if failed != nil {
			return a, failed
		}
	}
}

// judge is one round of compare. The bitmap is read before the versions of its bits: if it is still the newest one when
// etcd compares it, so are they.
func (w *Writer) judge(t *transaction, pre []store.Precondition, sure bool) (a attempt, err error) {
	a.compares = make([]*etcdserverpb.Compare, 0, len(pre)+1)
	var whole *store.Version
	if w.config.Bits != nil {
		whole, _ = w.state.Get(w.config.Bits.Whole)
	}
	bits := t.changesBits()
	for i := range pre {
		p := &pre[i]
		live, _ := w.state.Get(p.Key)
		if w.bits(p.Key) != nil {
			if err := p.Holds(live); err != nil {
				return a, err
			}
			bits = true
			continue
		}
		at, ok := w.config.Layout.Path(p.Key)
		if !ok {
			return a, fmt.Errorf("etcd: %s has no place there", p.Key)
		}
		revision := p.Revision
		if p.Type != store.ThisRevision && live != nil {
			revision = live.Revision
		}
		if err := p.Holds(live); err != nil && !(p.Type == store.ThisRevision && !sure) {
			return a, err
		}
		a.compares = append(a.compares, isAt(w.prefix+at, revision))
	}
	if bits {
		err = w.addBits(&a, t, whole)
	}
	return a, err
}

// execute sends a transaction to etcd, as a message: clientv3's own transactions copy each part of it several times.
func (w *Writer) execute(t *transaction, a attempt) (*etcdserverpb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	lease := clientv3.NoLease
	if !t.expire.IsZero() {
		var err error
		if lease, err = w.leases.until(ctx, t.expire); err != nil {
			return nil, err
		}
	}
	ops := make([]*etcdserverpb.RequestOp, len(t.changes), len(t.changes)+1)
	for i, at := range t.paths {
		switch {
		case t.values[i] == nil:
			ops[i] = &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte(w.prefix + at)}}}
		case t.changes[i].Sidecar.Expire.IsZero():
			ops[i] = put(w.prefix+at, t.values[i], clientv3.NoLease)
			ops[i].GetRequestPut().IgnoreLease = t.changes[i].Again // the expiry is the lease's, and not known here
		default:
			ops[i] = put(w.prefix+at, t.values[i], lease)
		}
	}
	if a.bits != nil {
		ops = append(ops, put(w.prefix+w.wholePath(), a.bits, clientv3.NoLease))
	}
	began := time.Now()
	had := w.state.Revision()
	answer, err := w.kv.Txn(ctx, &etcdserverpb.TxnRequest{Compare: a.compares, Success: ops})
	err = clientv3.ContextError(ctx, err)
	w.config.Observe.request(t.operation(), t.resource(), began, err)
	if err == nil {
		err = w.same(answer.Header.ClusterId, answer.Header.Revision, had)
	}
	return answer, err
}

// isAt is the comparison that a key was last written at a revision; 0: that there is none.
func isAt(key string, revision int64) *etcdserverpb.Compare {
	return &etcdserverpb.Compare{Result: etcdserverpb.Compare_EQUAL, Target: etcdserverpb.Compare_MOD, Key: []byte(key),
		TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: revision}}
}

// put is the operation that writes a value.
func put(key string, value []byte, lease clientv3.LeaseID) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: []byte(key), Value: value, Lease: int64(lease)}}}
}

// operation is what a transaction is called in metrics, as in the reference.
func (t *transaction) operation() string {
	switch {
	case len(t.changes) != 1:
		return "txn"
	case t.values[0] == nil:
		return "delete"
	case t.creates:
		return "create"
	}
	return "update"
}

// resource is that of the only change; "" if there are several.
func (t *transaction) resource() string {
	if len(t.changes) != 1 {
		return ""
	}
	return t.changes[0].Key.Resource
}

// send records the changes of a transaction that is about to be sent. If a change that cannot be told apart from one of
// them is under way, it waits until the outcome of that is known.
func (w *Writer) send(t *transaction, pre []store.Precondition) []*sent {
	all := make([]*sent, len(t.changes))
	for i := range t.changes {
		s := &sent{value: t.values[i], base: anyBase, data: t.changes[i].Data, sidecar: t.changes[i].Sidecar}
		for j := range pre {
			if pre[j].Type == store.ThisRevision && pre[j].Key == t.changes[i].Key {
				s.base = pre[j].Revision
				t.creates = t.creates || i == 0 && s.base == 0
			}
		}
		all[i] = s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		other := w.underWay(t, all)
		if other == nil {
			break
		}
		if other.done == nil {
			other.done = make(chan struct{})
		}
		w.mu.Unlock()
		<-other.done
		w.mu.Lock()
	}
	for i, at := range t.paths {
		w.sent[at] = append(w.sent[at], all[i])
	}
	return all
}

// underWay finds a change that cannot be told apart from one of these. The caller holds mu.
func (w *Writer) underWay(t *transaction, all []*sent) *sent {
	for i, at := range t.paths {
		for _, other := range w.sent[at] {
			if other.equal(all[i]) {
				return other
			}
		}
	}
	return nil
}

// forget is called when the outcome of a transaction is known, or is looked for no longer.
func (w *Writer) forget(t *transaction, all []*sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range all {
		if s.done != nil {
			close(s.done)
		}
		at := t.paths[i]
		left := slices.DeleteFunc(w.sent[at], func(other *sent) bool { return other == s })
		if len(left) == 0 {
			delete(w.sent, at)
		} else {
			w.sent[at] = left
		}
	}
}

// outcome is the revision at which the state has received the changes of a transaction; 0 if it has not.
func (w *Writer) outcome(all []*sent) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range all {
		if s.revision > 0 {
			return s.revision
		}
	}
	return 0
}

// isTransient says whether an error of a request leaves open whether it was carried out, or will pass: all errors of
// the connection, of time, and of members without a leader. What etcd refuses it has not carried out.
func isTransient(err error) bool {
	if errors.Is(err, store.ErrClosed) {
		return false
	}
	switch err := rpctypes.Error(err).(type) { //nolint:errorlint // rpctypes.Error returns this type itself
	case rpctypes.EtcdError:
		switch err.Code() {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
			return true
		}
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true
	}
	return false
}

// refusal is the error of the store for what etcd refuses.
func refusal(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return fmt.Errorf("%w: %w", store.ErrNoRoom, err)
	}
	return err
}
