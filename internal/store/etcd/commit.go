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

	sent    []*sent // the changes, by their index
	reloads int64   // Writer.reloads before it was sent
	// lost says that the answer to an attempt was lost, unwitnessed that one of these has not written the witness.
	// number is that of the transaction in the witness; 0: it has none.
	lost, unwitnessed bool
	number            int64
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
	return seal.Append(nil, "", ch.Key, plain), nil
}

// commit carries out a transaction. Its preconditions become comparisons of revisions: with the one that the caller
// requires, or, for the others (fences, identities), with that of the version for which the precondition was found to
// hold. If etcd refuses, one of these keys has changed in the meantime. The state is brought up to that change, and the
// preconditions are judged again: if one does not hold, that is the answer; if all do, a fence has changed in a way
// that does not matter, and the transaction is sent again.
//
// An answer that is lost leaves three possibilities: the transaction was carried out, it was not, or it still will be.
// So an attempt that could be carried out later than all that follows is recalled, etcd is read until it answers, and
// the state brought up to that; then either
//
//   - the state has received equal changes. They are those of this transaction, or those of another process, and its
//     outcome is what whatBecame finds out;
//   - or a precondition does not hold any more: it was not carried out, and will not be, as no revision comes back, and
//     an attempt that requires no revision was recalled;
//   - or all hold. Then it is sent again, and whichever of the two is carried out first, the other one is refused.
//
// The caller is told what has become of the transaction, or ErrUnknown:
//
//	a revision  ⇒  this transaction has made it;  a conflict, ErrClosed  ⇒  it was not carried out, and will not be
func (w *Writer) commit(t *transaction, pre []store.Precondition) (store.Revisions, error) {
	w.send(t, pre)
	defer w.forget(t)
	end := time.Now().Add(patience)
	for sure := false; ; { // sure: the state has what etcd had after the last attempt
		a, err := w.compare(t, pre, sure)
		if t.lost {
			if at, unknown := w.whatBecame(t, err, end); at > 0 || unknown != nil {
				return store.Revisions{First: at}, unknown
			}
		}
		if err != nil {
			return store.Revisions{}, err
		}
		answer, witnessed, err := w.execute(t, a)
		sure = false
		switch {
		case err == nil && answer.Succeeded:
			if err := w.arrive(w.ctx, answer.Header.Revision); err != nil {
				return store.Revisions{}, unknown(err) // it was written, but nobody can read it here
			}
			return store.Revisions{First: answer.Header.Revision}, nil
		case err == nil:
			// Refused: the next round finds out why.
			if err := w.arrive(w.ctx, answer.Header.Revision); err != nil {
				return store.Revisions{}, t.failed(err)
			}
			sure = true
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			// The lease is gone, as etcd was restored from a snapshot: the next attempt gets another one.
			w.leases.drop()
			w.witness.drop()
		case a.recallKey > 0 && errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
			w.recalls.refuse()
		case witnessed && errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
			w.witness.refuse()
		case isTransient(err):
			if !errors.As(err, new(*notSentError)) {
				t.lost, t.unwitnessed = true, t.unwitnessed || !witnessed
				w.witness.call(time.Now())
			}
			if failed := w.insist(end, func() error { return w.lookAgain(a) }); failed != nil {
				return store.Revisions{}, t.failed(fmt.Errorf("%w (%w)", err, failed))
			}
			sure = true
		case answer.GetSucceeded(): // in another etcd
			return store.Revisions{}, unknown(err)
		default:
			return store.Revisions{}, t.failed(refusal(err))
		}
	}
}

// whatBecame finds out what has become of a transaction of which an answer was lost. It returns the revision at which
// it was carried out; 0 if it was not, as far as the state has come; or ErrUnknown. refused is why it would not be
// carried out now.
//
// It looks for changes in the state that are equal to those of the transaction:
//
//   - There are some, and no other process can have made them (sent.unique): the transaction was carried out.
//   - There are some, and another process can have made them: the witness says whose they are. If one of the attempts
//     did not write the witness, that cannot be found out.
//   - There are none: it was not carried out, unless the state has missed changes (reload). Then it may have been, and
//     its changes may have been overwritten since. A key that still has the revision that it replaces proves that it
//     was not. One that is absent, as it has to be, does not: the transaction may have made it, and another one removed
//     it.
func (w *Writer) whatBecame(t *transaction, refused error, end time.Time) (int64, error) {
	equal, unique, missed := w.found(t)
	switch {
	case len(equal) > 0 && unique:
		return equal[0], nil
	case len(equal) > 0 && t.unwitnessed:
		return 0, unknown(errEqual)
	}
	for _, at := range equal {
		mine := false
		err := w.insist(end, func() (err error) {
			mine, err = w.saw(t.number, at)
			return err
		})
		if err != nil {
			return 0, unknown(err)
		}
		if mine {
			return at, nil
		}
	}
	if missed && (refused != nil || !t.replaces()) {
		return 0, unknown(errMissed)
	}
	return 0, nil
}

// Why the outcome of a transaction is not known.
var (
	errEqual  = errors.New("etcd has not answered, and has an equal change, which another server may have made")
	errMissed = errors.New("etcd has not answered, and has compacted what has happened since")
)

// unknown is store.ErrUnknown with its reason. That is not wrapped: it would be taken for the error of a commit that
// was not carried out.
func unknown(err error) error { return fmt.Errorf("etcd: %w: %s", store.ErrUnknown, err) }

// failed is the error of a transaction whose last attempt has failed and was not carried out.
func (t *transaction) failed(err error) error {
	if t.lost { // an earlier attempt may have been
		return unknown(err)
	}
	return err
}

// lookAgain brings the state up to a revision of etcd at which an attempt was carried out, if it ever will be.
func (w *Writer) lookAgain(a attempt) error {
	if err := w.recall(a.recallKey); err != nil {
		return err
	}
	revision, err := w.revision()
	if err != nil {
		return err
	}
	return w.arrive(w.ctx, revision)
}

// insist makes a request as often as it takes until etcd answers, or until a time.
func (w *Writer) insist(end time.Time, request func() error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := request()
		if err == nil || errors.Is(err, store.ErrClosed) || errors.Is(err, rpctypes.ErrCompacted) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-w.closing:
			return err
		case <-w.ctx.Done():
			return w.ended()
		}
	}
}

// compare makes the comparisons of a transaction. It returns the error of the first precondition that does not hold.
//
// A state that lags behind etcd must not refuse a precondition. So if one does not hold, the state is brought up to
// etcd's revision, and the preconditions are judged once more; sure says that the caller has done so already. Whether a
// key has the revision that the caller requires is not judged on a state that may lag: etcd compares it anyway. Bits
// are, as etcd compares the bitmap that they were judged by.
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
	if !t.replaces() {
		if a.recallKey = w.recalls.current(); a.recallKey > 0 {
			a.compares = append(a.compares, isAt(w.recalls.key(a.recallKey), 0))
		}
	}
	if bits {
		err = w.addBits(&a, t, whole)
	}
	return a, err
}

// notSentError is the error of an attempt that has ended before its transaction was sent.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// execute sends a transaction to etcd, as a message: clientv3's own transactions copy each part of it several times.
// witnessed says whether it writes the witness. If it was carried out in another etcd than that of the state, execute
// returns its answer and an error.
func (w *Writer) execute(t *transaction, a attempt) (_ *etcdserverpb.TxnResponse, witnessed bool, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	lease := clientv3.NoLease
	if !t.expire.IsZero() {
		if lease, err = w.leases.until(ctx, t.expire); err != nil {
			return nil, false, &notSentError{err}
		}
	}
	testify, err := w.witness.write(ctx, w.Cluster, t)
	if err != nil {
		return nil, false, &notSentError{err}
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
	if testify != nil {
		ops = append(ops, testify)
	}
	began := time.Now()
	had := w.state.Revision()
	answer, err := w.kv.Txn(ctx, &etcdserverpb.TxnRequest{Compare: a.compares, Success: ops})
	err = clientv3.ContextError(ctx, err)
	w.config.Observe.request(t.operation(), t.resource(), began, err)
	if err == nil {
		err = w.same(answer.Header.ClusterId, answer.Header.Revision, had)
	}
	return answer, testify != nil, err
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

// send records the changes of a transaction that is about to be sent.
func (w *Writer) send(t *transaction, pre []store.Precondition) {
	t.sent = make([]*sent, len(t.changes))
	for i := range t.changes {
		ch := &t.changes[i]
		s := &sent{value: t.values[i], base: anyBase, data: ch.Data, sidecar: ch.Sidecar}
		for j := range pre {
			if pre[j].Type == store.ThisRevision && pre[j].Key == ch.Key {
				s.base = pre[j].Revision
				t.creates = t.creates || i == 0 && s.base == 0
			}
		}
		s.unique = s.value != nil && (ch.Sidecar.SealedBy != 0 || s.base == 0 && ch.Sidecar.UID != "")
		t.sent[i] = s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.reloads = w.reloads
	for i, at := range t.paths {
		w.sent[at] = append(w.sent[at], t.sent[i])
	}
}

// forget is called when the outcome of a transaction is known, or is looked for no longer.
func (w *Writer) forget(t *transaction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range t.sent {
		at := t.paths[i]
		left := slices.DeleteFunc(w.sent[at], func(other *sent) bool { return other == s })
		if len(left) == 0 {
			delete(w.sent, at)
		} else {
			w.sent[at] = left
		}
	}
}

// found returns the revisions at which the state has received changes that are equal to those of a transaction; whether
// no other process can have made them; and whether the state has missed changes since the transaction was sent.
func (w *Writer) found(t *transaction) (equal []int64, unique, missed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range t.sent {
		if len(s.revisions) > 0 && !unique {
			equal, unique = slices.Clone(s.revisions), s.unique
		}
	}
	return equal, unique, w.reloads != t.reloads
}

// unique says whether the changes of a transaction cannot be another's.
func (t *transaction) unique() bool {
	return slices.ContainsFunc(t.sent, func(s *sent) bool { return s.unique })
}

// replaces says whether a transaction requires that a key that it changes has a certain revision.
func (t *transaction) replaces() bool {
	return slices.ContainsFunc(t.sent, func(s *sent) bool { return s.base > 0 })
}

// isTransient says whether a request that has failed may succeed when it is sent again: its connection was lost, its
// time was over, or the member had no leader. Then it may have been carried out. After any other error it was not.
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
