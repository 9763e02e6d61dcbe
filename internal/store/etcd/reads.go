package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/internal/execution"
	"plinth/internal/store"
)

// reads are the requests for etcd's revision, of which one is on its way at a time.
//
// The problem: each GET of a client asks etcd for its revision, since another process may have written, and a request
// costs far more than the GET itself. The answer to a request is good for every read that began before the request was
// sent. So reads that come while a request is on its way share the next one:
//
//	a read that began at t gets the answer to a request that was sent after t
type reads struct {
	mu      sync.Mutex
	running bool
	next    *read // the reads that wait for the next request; nil: there are none
}

// read is one request, shared by all that wait for it.
type read struct {
	done     chan struct{} // closed when it has been answered
	began    time.Time     // before it was sent
	revision int64
	err      error
}

// newest is an answered request that was sent after the call: its revision is no older than the newest one at the time
// of the call.
func (w *Writer) newest(ctx context.Context) (*read, error) {
	w.life.RLock()
	if w.closed {
		w.life.RUnlock()
		return nil, store.ErrClosed
	}
	w.reads.mu.Lock()
	r := w.reads.next
	if r == nil {
		r = &read{done: make(chan struct{})}
		w.reads.next = r
		if !w.reads.running {
			w.reads.running = true
			w.work.Go(w.readAll)
		}
	}
	w.reads.mu.Unlock()
	w.life.RUnlock()
	select {
	case <-r.done:
		return r, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.ctx.Done():
		return nil, w.ended()
	}
}

// readAll sends requests for as long as somebody waits for one.
func (w *Writer) readAll() {
	for {
		w.reads.mu.Lock()
		r := w.reads.next
		w.reads.next = nil
		w.reads.running = r != nil
		w.reads.mu.Unlock()
		if r == nil {
			return
		}
		r.began = time.Now()
		r.revision, r.err = w.revision()
		close(r.done)
	}
}

// attemptTimeout bounds the first attempt to read etcd's revision; each further one may take twice as long. The client
// sends each to the next member: one that has been frozen is found out by its connection only after 40 s.
const attemptTimeout = time.Second

// revision reads etcd's revision: that of a range without keys, which costs etcd least.
func (w *Writer) revision() (int64, error) {
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	for timeout := attemptTimeout; ; timeout *= 2 {
		revision, err := w.revisionWithin(ctx, timeout)
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return revision, err
		}
	}
}

// revisionWithin is one attempt of revision. The error of an attempt that took too long is context.DeadlineExceeded.
func (w *Writer) revisionWithin(ctx context.Context, timeout time.Duration) (int64, error) {
	had := w.state.Revision()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	answer, err := w.client.Get(ctx, w.prefix, clientv3.WithLimit(1), clientv3.WithKeysOnly())
	w.config.Observe.request("get", "", began, err)
	if err != nil {
		if ended := w.ended(); ended != nil {
			return 0, ended
		}
		if ctx.Err() != nil {
			err = context.DeadlineExceeded
		}
		return 0, fmt.Errorf("etcd: %w", err)
	}
	if err := w.same(answer.Header.ClusterId, answer.Header.Revision, had); err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// errOther is why a writer stops: revisions that clients have would mean other objects, and what they have seen is
// gone.
var errOther = errors.New("etcd is not the one that it was: it was replaced, or restored from an older snapshot. " +
	"Restart all servers, and restore with a higher revision (etcdutl snapshot restore --bump-revision)")

// same returns nil if an answer is from the etcd that the state follows, given the state's revision before the request.
func (w *Writer) same(cluster uint64, revision, had int64) error {
	if cluster == w.id && revision >= had {
		return nil
	}
	w.breakOff(fmt.Errorf("%w (cluster %x at revision %d, before %x at %d)", errOther, cluster, revision, w.id, had))
	return w.ended()
}

// Fresh is store.Others.Fresh.
func (w *Writer) Fresh(ctx context.Context, _ store.Key, sure bool) (current bool, err error) {
	if !sure {
		return false, nil
	}
	execution.Outside(ctx, func() { err = w.catchUp(ctx) })
	return err == nil, err
}

// catchUp waits until the state has all that etcd had at the time of the call.
func (w *Writer) catchUp(ctx context.Context) error {
	newest, err := w.newest(ctx)
	if err == nil {
		err = w.arrive(ctx, newest.revision)
	}
	if err == nil {
		w.confirm(newest.began)
	}
	return err
}

// confirm records that the state has had all that etcd had at a time. What decides about requests (roles, definitions,
// policies, webhooks) is taken from the state, and is no older than the latest such time.
func (w *Writer) confirm(at time.Time) {
	for ns := at.UnixNano(); ; {
		before := w.confirmed.Load()
		if ns <= before {
			return
		}
		if w.confirmed.CompareAndSwap(before, ns) {
			break
		}
	}
	if told := w.config.Observe.Confirmed; told != nil {
		told(at)
	}
}

// keepConfirming compares the state with etcd whenever nobody else has for some time.
func (w *Writer) keepConfirming() {
	every := w.config.ConfirmEvery
	for {
		select {
		case <-time.After(every):
		case <-w.ctx.Done():
			return
		}
		if time.Since(time.Unix(0, w.confirmed.Load())) < every {
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
		_ = w.catchUp(ctx) // the time tells
		cancel()
	}
}

// Atomic is store.Others.Atomic: a transaction has one revision. Bits are one key of etcd, and nobody watches them.
func (w *Writer) Atomic(a, b store.Key) bool {
	if w.bits(a) != nil || w.bits(b) != nil {
		return true
	}
	return a.Resource != b.Resource && !slices.Contains(w.config.Apart, a.Resource) &&
		!slices.Contains(w.config.Apart, b.Resource)
}

// The time after which a progress request is sent, and the longest time between two.
const (
	progressAfter = 2 * time.Millisecond
	progressEvery = 100 * time.Millisecond
)

// silence is how long progress requests may stay without an answer before the watch is begun again, at the next member:
// the present one may be frozen.
const silence = 2 * time.Second

// arrive waits until the state has a revision of etcd, until ctx ends, or until the writer does.
//
// Usually the watch delivers the change of that revision within a millisecond. But if the revision is that of a key
// outside of the prefix, no change comes, and the state would never have it. So after progressAfter, and then less and
// less often, a progress request asks etcd up to which revision the watch has delivered everything.
func (w *Writer) arrive(ctx context.Context, revision int64) error {
	if w.state.Revision() >= revision {
		return nil
	}
	began := time.Now()
	if waited := w.config.Observe.Waited; waited != nil {
		defer func() { waited(time.Since(began)) }()
	}
	for wait := progressAfter; ; wait = min(2*wait, progressEvery) {
		soon, cancel := context.WithTimeout(ctx, wait)
		err := w.state.WaitFor(soon, revision)
		cancel()
		if err == nil || ctx.Err() != nil && w.ctx.Err() == nil {
			return err
		}
		if ended := w.ended(); ended != nil {
			return ended
		}
		watch := w.watching.Load()
		if watch == nil {
			continue
		}
		if long := time.Now().Add(-silence); began.Before(long) && watch.silentSince(long) {
			if w.watching.CompareAndSwap(watch, nil) {
				w.config.Logger.Warn("the watch of etcd says nothing, and is begun again", "revision", revision)
				watch.stop()
			}
			continue
		}
		// An error means that the watch is being restored, which will bring the revision.
		_ = w.client.RequestProgress(watch.ctx)
	}
}
