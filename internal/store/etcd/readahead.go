package etcd

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// span is all changes of the keys of etcd that begin with its scope, after one revision and up to another one.
//
//	after < events[0].Kv.ModRevision ≤ events[1].Kv.ModRevision ≤ … ≤ to
type span struct {
	scope     string
	after, to int64
	events    []*clientv3.Event // nobody changes them
}

// from is the part of the span after a revision.
func (s *span) from(after int64) *span {
	n := sort.Search(len(s.events), func(i int) bool { return s.events[i].Kv.ModRevision > after })
	return &span{s.scope, max(s.after, after), s.to, s.events[n:]}
}

// firstRevision is how many events have the revision of the first one.
func firstRevision(events []*clientv3.Event) int {
	n := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != events[0].Kv.ModRevision })
	if n < 0 {
		return len(events)
	}
	return n
}

// eventBytes is the approximate memory of an event.
func eventBytes(e *clientv3.Event) int {
	n := 300 + len(e.Kv.Key) + len(e.Kv.Value)
	if e.PrevKv != nil {
		n += len(e.PrevKv.Key) + len(e.PrevKv.Value)
	}
	return n
}

// The bounds of what is kept, in bytes, and for how long it is kept after it was last used.
const (
	aheadBytes     = 16 << 20
	aheadSpanBytes = 4 << 20 // of one answer
	spanBytes      = 200     // of a span without events
	aheadFor       = 10 * time.Second
)

// readAhead keeps what was received of the history, for the next Replay (replayer.fetch).
//
// The problem: a cursor reads the history in batches of a few dozen changes, each by a Replay, so that a client which
// does not read holds no more than one batch. etcd begins a watch in the past at its next turn only, of which there are
// ten in a second, and then sends the changes of a thousand revisions. With a watch of etcd for each batch, a client
// catches up with 600 changes in a second, of which etcd sends most ten times over. To leave the watch of etcd open
// between two batches bounds nothing: etcd's client receives all that comes, whether or not somebody takes it.
//
// History does not change, so what is kept is right for as long as it is kept, also for other cursors:
//
//	bytes = Σ spans[i].bytes ≤ aheadBytes,  spans[i].bytes ≤ aheadSpanBytes, unless its only revision has more events
//	spans are in the order of their last use
type readAhead struct {
	mu     sync.Mutex
	spans  []keptSpan
	bytes  int
	expiry *time.Timer // drops all; it begins anew with each use
}

type keptSpan struct {
	*span
	bytes int
}

// find returns a span that has the changes of a scope after a revision; nil: none is kept.
func (a *readAhead) find(scope string, after int64) *span {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.spans {
		if strings.HasPrefix(scope, s.scope) && s.after <= after && after < s.to {
			a.spans = append(slices.Delete(a.spans, i, i+1), s)
			a.expiry.Reset(aheadFor)
			return s.span
		}
	}
	return nil
}

// keep keeps a span in pieces, as much of its beginning as there is room for, and returns how many bytes that takes.
// What was used long ago makes room for it.
func (a *readAhead) keep(s *span) (bytes int) {
	for s.after < s.to && bytes+aheadSpanBytes <= aheadBytes {
		piece, size := s.piece()
		bytes += size
		if size <= aheadBytes {
			a.keepPiece(keptSpan{piece, size})
		}
		s = s.from(piece.to)
	}
	return bytes
}

// piece is the beginning of a span, and its bytes: as much of it as one that is kept may have.
func (s *span) piece() (*span, int) {
	n, to, bytes := 0, s.to, spanBytes
	for n < len(s.events) {
		end, more := n+firstRevision(s.events[n:]), 0
		for _, e := range s.events[n:end] {
			more += eventBytes(e)
		}
		if n > 0 && bytes+more > aheadSpanBytes {
			to = s.events[n-1].Kv.ModRevision
			break
		}
		n, bytes = end, bytes+more
	}
	// A part of the array would keep all of it.
	return &span{s.scope, s.after, to, slices.Clone(s.events[:n])}, bytes
}

func (a *readAhead) keepPiece(k keptSpan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.ContainsFunc(a.spans, func(o keptSpan) bool {
		return strings.HasPrefix(k.scope, o.scope) && o.after <= k.after && k.to <= o.to
	}) {
		return
	}
	a.spans, a.bytes = append(a.spans, k), a.bytes+k.bytes
	for a.bytes > aheadBytes {
		a.bytes -= a.spans[0].bytes
		a.spans = slices.Delete(a.spans, 0, 1)
	}
	if a.expiry == nil {
		a.expiry = time.AfterFunc(aheadFor, a.drop)
	} else {
		a.expiry.Reset(aheadFor)
	}
}

// drop forgets all spans.
func (a *readAhead) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans, a.bytes = nil, 0
}
