package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// witness is a key of etcd that the transactions of this process write, too, while answers are being lost.
//
// The problem: an answer is lost, and a change that is equal to ours is in etcd: the same value in the place of the
// same version. Another process may have made it, for a client of its own. Two clients that add one to the same number
// would both be told that they have. Nothing in etcd's changes says who has made them. A key that each transaction
// writes as well would, but it costs etcd a second write for every one of them, for an answer that is hardly ever lost.
// So the first answer that is lost makes the outcome of its transaction unknown, which is what a client of the
// reference is told of each; and from then on, for some time, every transaction that needs it writes its number to a
// key that no other process writes:
//
//	the witness was written at revision r with the number n  ⇔  transaction n of this process has made revision r
//
// A transaction does not need it if its values cannot be another's (sent.unique). The key lies outside of every prefix,
// so that nobody watches it, and ends with its lease.
type witness struct {
	key      string
	granting chan struct{} // of capacity 1; full while a lease is asked for

	mu    sync.Mutex
	until time.Time // transactions write it until then
	off   bool      // etcd does not let this process write it
	last  int64     // the number of the newest transaction that writes it
	lease clientv3.LeaseID
	renew time.Time // when whoever needs one next has another lease
}

// witnessFor is how long after an answer was lost transactions write the witness, witnessLease how long the key stays.
const (
	witnessFor   = 10 * time.Minute
	witnessLease = time.Hour
)

func newWitness() witness {
	return witness{key: fmt.Sprintf("plinth_witness/%016x", rand.Uint64()), granting: make(chan struct{}, 1)}
}

// call makes the transactions from now on write the witness.
func (w *witness) call(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = now.Add(witnessFor)
}

// refuse makes no transaction write the witness any more.
func (w *witness) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = true
}

// drop makes whoever needs a lease next have another one.
func (w *witness) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renew = time.Time{}
}

// write is the operation by which a transaction writes the witness; nil if it does not. The transaction gets its number
// at the first attempt that has one.
func (w *witness) write(ctx context.Context, e *Cluster, t *transaction) (*etcdserverpb.RequestOp, error) {
	if !w.called(time.Now()) || t.unique() {
		return nil, nil
	}
	lease, err := w.leased(ctx, e)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.number == 0 {
		w.last++
		t.number = w.last
	}
	return put(w.key, []byte(strconv.FormatInt(t.number, 10)), lease), nil
}

// called says whether transactions write the witness at a time.
func (w *witness) called(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.off && !now.After(w.until)
}

// leased is a lease that ends in half of witnessLease at the earliest. One is asked for at a time, and whoever needs it
// waits no longer than its context.
func (w *witness) leased(ctx context.Context, e *Cluster) (clientv3.LeaseID, error) {
	select {
	case w.granting <- struct{}{}:
		defer func() { <-w.granting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	now := time.Now()
	w.mu.Lock()
	lease, renew := w.lease, w.renew
	w.mu.Unlock()
	if !now.After(renew) {
		return lease, nil
	}
	answer, err := e.client.Grant(ctx, int64(witnessLease.Seconds()))
	if err != nil {
		return 0, fmt.Errorf("etcd: no lease: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease, w.renew = answer.ID, now.Add(witnessLease/2)
	return w.lease, nil
}

// saw says whether a transaction of this process has made a revision, given its number. Another etcd in the place of
// the one that the state follows has no witness, which says nothing.
func (w *Writer) saw(number, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	had := w.state.Revision()
	answer, err := w.client.Get(ctx, w.witness.key, clientv3.WithRev(revision))
	if err == nil {
		err = w.same(answer.Header.ClusterId, answer.Header.Revision, had)
	}
	if err != nil {
		return false, err
	}
	return len(answer.Kvs) == 1 && answer.Kvs[0].ModRevision == revision &&
		string(answer.Kvs[0].Value) == strconv.FormatInt(number, 10), nil
}
