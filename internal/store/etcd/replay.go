package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/internal/execution"
	"plinth/internal/store"
)

// replayer reads old changes from etcd (store.Replayer).
type replayer struct {
	w     *Writer
	ahead readAhead
	// fetching are of capacity 1, and full while changes are fetched. Scopes share them by their hashes.
	fetching [32]chan struct{}
}

func newReplayer(w *Writer) *replayer {
	h := &replayer{w: w}
	for i := range h.fetching {
		h.fetching[i] = make(chan struct{}, 1)
	}
	return h
}

// Replay is store.Replayer.Replay. It yields what the state has at the time of the call. It ends with the writer, too.
func (h *replayer) Replay(ctx context.Context, after int64, of []string, yield func(*store.Commit) error) error {
	w := h.w
	if w.state == nil { // the state is being made: only the first revision matters (store.State.reaches)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.ctx, cancel)
	defer stop()
	scope, until := w.scope(of), w.state.Revision()
	for at := after; at < until; {
		s, err := h.ahead.find(scope, at), error(nil)
		if s == nil {
			s, err = h.fetch(ctx, scope, at, until)
		}
		if err != nil {
			return err
		}
		if at, err = w.yieldSpan(ctx, s, at, until, of, yield); err != nil {
			return err
		}
	}
	return nil
}

// scope is how all keys of etcd begin that the records of some resources come from.
func (w *Writer) scope(of []string) string {
	if len(of) != 1 {
		return w.prefix
	}
	at, ok := w.config.Layout.Path(store.Key{Resource: of[0]})
	if b := w.config.Bits; b != nil {
		elsewhere := of[0] == b.Whole.Resource && !strings.HasPrefix(w.wholePath(), at)
		ok = ok && of[0] != b.Resource && !elsewhere
	}
	if !ok {
		return w.prefix
	}
	return w.prefix + at
}

// fetch returns changes after a revision, and keeps what follows them up to another one, as far as there is room, and
// up to what is kept already.
//
// The problem: when a server has started again, the clients of all its watches come back within a second, each at the
// revision that it had: a hundred of them for each controller manager, and memory has no history yet. Most are of types
// that change seldom, and were told a minute ago how far they are. A watch of etcd for each of them has etcd read the
// changes of that minute a hundred times, and for each change the value before it: etcd does nothing else then for a
// minute, and leases of nodes are not renewed. So
//
//   - a watch of etcd is for one scope: of a type, to which the others send nothing. etcd goes through its history once
//     for all watches that have begun meanwhile;
//   - of those who need the same scope one fetches, and goes on further than it needs itself; the others wait, and find
//     what they need among what is kept. Only one that needs older changes than all before it fetches these.
func (h *replayer) fetch(ctx context.Context, scope string, after, until int64) (*span, error) {
	var err error
	hash := fnv.New32a()
	hash.Write([]byte(scope))
	fetching := h.fetching[hash.Sum32()%uint32(len(h.fetching))]
	execution.Outside(ctx, func() {
		execution.AssertOutside(ctx, "etcd")
		select {
		case fetching <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	if err != nil {
		return nil, h.w.interrupted(ctx, err)
	}
	defer func() { <-fetching }()
	if s := h.ahead.find(scope, after); s != nil {
		return s, nil
	}
	var first *span
	bytes := 0
	err = h.receive(ctx, scope, after, until, func(s *span) (more bool) {
		if first == nil {
			first = s
		}
		bytes += h.ahead.keep(s)
		return bytes < aheadBytes/2 && h.ahead.find(scope, s.to) == nil
	})
	if first != nil {
		err = nil // of what follows, which whoever needs it will be told
	}
	return first, err
}

// receive yields what etcd sends for the changes of a scope after a revision, up to another one or until yield returns
// false.
//
// The problem: etcd may compact the history while it is read, and does not say so in what it sends. A change comes with
// the value before it, which etcd reads when it sends the change: if that is compacted by then, the change comes
// without. Taken for the first one of its key, it would make the object unknown at all earlier revisions, and a list of
// one of them would lack it. Before etcd 3.5.16, a deletion at the very revision of a compaction does not come at all.
// So after each answer etcd is asked whether it still has the revision at which the answer begins:
//
//	etcd has revision r when the answer has come  ⇒  the answer has all changes after r, up to its last one,
//	                                                 and the value before each
//
// That answer also says which etcd it is: another one, in the place of the one that the state follows, has other
// changes at the same revisions.
//
// past looks at each change, too: it knows which ones must have a value before.
func (h *replayer) receive(ctx context.Context, scope string, after, until int64,
	yield func(*span) (more bool)) error {
	w := h.w
	watch, stop := context.WithCancel(w.ownStream(execution.With(ctx, nil))) // the stream is another goroutine's
	defer stop()
	var changes clientv3.WatchChan
	execution.Outside(ctx, func() {
		changes = w.client.Watch(watch, scope, clientv3.WithPrefix(), clientv3.WithRev(after+1),
			clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	})
	for at := after; ; { // all changes up to it have come
		var answer clientv3.WatchResponse
		var more bool
		execution.Outside(ctx, func() { answer, more = <-changes })
		if !more {
			return w.interrupted(ctx, store.ErrClosed)
		}
		if err := answer.Err(); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) {
				return store.ErrCompacted
			}
			return fmt.Errorf("etcd: %w", err)
		}
		if answer.Created {
			go w.askProgress(watch)
			continue
		}
		var err error
		if execution.Outside(ctx, func() { err = w.has(ctx, at) }); err != nil {
			return w.interrupted(ctx, err)
		}
		s := &span{scope: scope, after: at, to: at, events: answer.Events}
		switch n := len(answer.Events); {
		case n > 0:
			s.to = answer.Events[n-1].Kv.ModRevision
		case answer.IsProgressNotify():
			s.to = answer.Header.Revision // there is nothing in between
		}
		if s.to == at {
			continue
		}
		if at = s.to; !yield(s) || at >= until {
			return nil
		}
	}
}

// interrupted is the error of a read of ctx, which ends with the writer: why it has ended, or else err.
func (w *Writer) interrupted(ctx context.Context, err error) error {
	if w.ctx.Err() != nil {
		return store.ErrClosed
	}
	return cmp.Or(ctx.Err(), err)
}

// yieldSpan yields the changes of a span with at < revision ≤ until, one commit for each revision. It returns the
// revision up to which all changes of the scope were yielded.
func (w *Writer) yieldSpan(ctx context.Context, s *span, at, until int64, of []string,
	yield func(*store.Commit) error) (int64, error) {
	for events := s.from(at).events; len(events) > 0; {
		revision := events[0].Kv.ModRevision
		if revision > until {
			return until, nil
		}
		c, n := &store.Commit{Revision: revision}, firstRevision(events)
		for _, e := range events[:n] {
			records, err := w.past(ctx, e, of)
			if err != nil {
				return at, err
			}
			c.Records = append(c.Records, records...)
		}
		// After the end of ctx what a plugin was to decrypt is unreadable for want of time, which is not to be yielded.
		if ctx.Err() != nil {
			return at, w.interrupted(ctx, nil)
		}
		if err := yield(c); err != nil {
			return at, err
		}
		events, at = events[n:], revision
	}
	return s.to, nil
}

// past is the records of an old change; none if it is of no object, or of none of some resources. The error is
// store.ErrCompacted if the change lacks the value before it: every change has one, except for those that create a key.
func (w *Writer) past(ctx context.Context, e *clientv3.Event, of []string) ([]*store.Record, error) {
	if e.PrevKv == nil && !e.IsCreate() {
		return nil, store.ErrCompacted
	}
	k, ok := w.key(e.Kv)
	b := w.whole(k)
	wanted := func(resource string) bool { return len(of) == 0 || slices.Contains(of, resource) }
	if !ok || !wanted(k.Resource) && (b == nil || !wanted(b.Resource)) {
		return nil, nil
	}
	r := &store.Record{Key: k, Revision: e.Kv.ModRevision}
	if e.PrevKv != nil {
		r.Old = w.undescribed(ctx, k, e.PrevKv)
	}
	if e.Type != mvccpb.Event_DELETE {
		r.New = w.undescribed(ctx, k, e.Kv)
	}
	all := []*store.Record{r}
	if b != nil {
		// When a bit was set that this change clears is not known: not after the bitmap was changed before.
		all = append(all, b.records(b.versions(r.Old), r.New, r.Revision, false)...)
	}
	return all, nil
}

// has returns store.ErrCompacted if etcd does not have a revision any more.
func (w *Writer) has(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	had := w.state.Revision()
	answer, err := w.client.Get(ctx, w.prefix, clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithRev(revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case err != nil:
		return fmt.Errorf("etcd: %w", err)
	}
	return w.same(answer.Header.ClusterId, answer.Header.Revision, had)
}

// oldest is the oldest revision after which etcd has all changes. A watch from the beginning, of a key that does not
// exist, is told if there was a compaction, and receives the answer to a progress request if there was none.
func (e *Cluster) oldest(ctx context.Context) (int64, error) {
	ctx, stop := context.WithCancel(e.ownStream(ctx))
	defer stop()
	for answer := range e.client.Watch(ctx, e.prefix, clientv3.WithRev(1), clientv3.WithCreatedNotify()) {
		switch {
		case answer.CompactRevision > 0:
			// The versions that were live then are kept, and so are the changes after it.
			return answer.CompactRevision, nil
		case answer.Err() != nil:
			return 0, answer.Err()
		case answer.Created:
			go e.askProgress(ctx)
		case answer.IsProgressNotify():
			return store.FirstRevision, nil
		}
	}
	return 0, cmp.Or(ctx.Err(), errors.New("etcd: the watch has ended"))
}

// askProgress asks how far the watch of a context is, until the context ends. One request is not enough: etcd does not
// answer it while the watch is behind.
func (e *Cluster) askProgress(ctx context.Context) {
	for ctx.Err() == nil {
		_ = e.client.RequestProgress(ctx) // an error means that the watch is being restored
		select {
		case <-ctx.Done():
		case <-time.After(10 * progressAfter):
		}
	}
}
