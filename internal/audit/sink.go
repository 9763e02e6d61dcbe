package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"plinth/internal/execution"
)

// sink writes events to one place. Each event is encoded, truncated if it is too large, and then written at once or
// queued.
type sink struct {
	name     string // its name in the reference's metrics: "log" or "webhook"
	counters *Counters
	logger   *slog.Logger
	delivery Delivery
	encode   func(e *event, dst []byte) []byte
	overhead int64 // size of apiVersion and kind, which encode omits but the size limit counts
	// write delivers encoded events. It may be called concurrently.
	write func(ctx context.Context, events [][]byte) error
	end   func() error    // closes the destination; may be nil
	again func() error    // opens the destination again; may be nil
	queue *queue          // nil: write is called at once
	ctx   context.Context // of writing at once: a request that ends does not lose its event; it ends with the Auditor
	// lastLogged is the second in which errors were last logged.
	lastLogged atomic.Int64
}

// encoded has buffers for events that are written at once.
var encoded = sync.Pool{New: func() any { return new(make([]byte, 0, 2<<10)) }}

// maxKept is the largest buffer that is kept for the next event.
const maxKept = 64 << 10

// process writes or queues an event. ok is false if the event was lost and the mode requires that the request fails.
func (b *sink) process(e *event) (ok bool) {
	if b.queue != nil {
		if text, ok := b.fit(nil, e); ok {
			b.enqueue(text)
		}
		return true
	}
	buffer := encoded.Get().(*[]byte)
	text, ok := b.fit((*buffer)[:0], e)
	if ok {
		execution.AssertOutside(context.Background(), "an audit sink")
		if err := b.write(b.ctx, [][]byte{text}); err != nil {
			b.failed(b.name, 1, err)
			ok = false
		}
	} else {
		ok = true // as in the reference, an event that is too large refuses no request
	}
	if cap(text) <= maxKept {
		*buffer = text
	}
	encoded.Put(buffer)
	return ok || b.delivery.Mode != blockingStrict
}

// truncated is the annotation of events whose bodies were removed.
const truncated = "audit.k8s.io/truncated"

var errTooLarge = errors.New("event is too large even after truncating")

// fit encodes an event. If it is too large its bodies are removed; ok is false if it still is.
func (b *sink) fit(dst []byte, e *event) (text []byte, ok bool) {
	text = b.encode(e, dst)
	if !b.delivery.Truncate || b.size(text) <= b.delivery.MaxEventBytes {
		return text, true
	}
	if e.request != nil || e.response != nil {
		r := Record{event: *e}
		r.event.request, r.event.response = nil, nil
		r.event.annotations = append([]annotation(nil), e.annotations...)
		r.Annotate(truncated, "true")
		if text = b.encode(&r.event, text[:0]); b.size(text) <= b.delivery.MaxEventBytes {
			return text, true
		}
	}
	b.failed("truncate", 1, errTooLarge)
	return text, false
}

func (b *sink) size(text []byte) int64 { return int64(len(text)) + b.overhead }

// failed counts lost events, and logs at most one message per second. Events are not logged, because they may contain
// bodies with secrets.
func (b *sink) failed(plugin string, events int, err error) {
	b.counters.failed(plugin, events)
	if second := time.Now().Unix(); b.lastLogged.Swap(second) != second {
		b.logger.Error("audit events are lost", "plugin", plugin, "events", events, "error", err)
	}
}

// maxQueued limits the bytes of queued events. BufferSize limits only their number, and a body may have megabytes.
const maxQueued = 256 << 20

var (
	errBlocked = errors.New("audit buffer queue blocked")
	errClosed  = errors.New("audit backend shut down")
)

// queue holds the events of a sink in batch mode.
//
// Problem: the disk or the webhook may be slower than requests come in, or stop. In batch mode a request must not wait
// for it, and memory must stay bounded. So an event that does not fit in the queue is dropped and counted
// (apiserver_audit_error_total). Two limits hold, because events are of very different sizes: len(events) ≤
// BufferSize, and
//
//	bytes = Σ len(e) over the events in the channel and in batches that are not written yet ≤ maxQueued
//
// The bytes of a batch count until it is written: a webhook that hangs would otherwise hold any number of batches.
//
// One goroutine (run) takes events out, so the events of a log stay in order.
type queue struct {
	events  chan []byte
	bytes   atomic.Int64
	limit   *rate.Limiter // nil: no limit
	async   bool          // batches are written concurrently
	writing sync.WaitGroup
	done    chan struct{} // closed when run has returned

	mu     sync.RWMutex // held for reading during a send, so that nothing is sent on the closed channel
	closed bool
}

func newQueue(d *Delivery, async bool) *queue {
	q := &queue{events: make(chan []byte, d.BufferSize), async: async, done: make(chan struct{})}
	if d.Throttle {
		q.limit = rate.NewLimiter(rate.Limit(d.QPS), d.Burst)
	}
	return q
}

// enqueue queues an event. It does not wait: if there is no space the event is dropped.
func (b *sink) enqueue(text []byte) {
	q := b.queue
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		b.failed("buffered", 1, errClosed)
		return
	}
	size := int64(len(text))
	if q.bytes.Add(size) <= maxQueued {
		select {
		case q.events <- text:
			return
		default:
		}
	}
	q.bytes.Add(-size)
	b.failed("buffered", 1, errBlocked)
}

// run writes queued events in batches until the queue is closed and empty. If ctx is cancelled, waiting and writing
// end.
func (b *sink) run(ctx context.Context) {
	q := b.queue
	defer close(q.done)
	for {
		events, more := b.collect(ctx)
		if len(events) > 0 {
			b.deliver(ctx, events)
		}
		if !more {
			return
		}
	}
}

// collect returns the next batch: it waits for a first event, and then until the batch is full, BatchWait has passed,
// or the queue is closed.
func (b *sink) collect(ctx context.Context) (events [][]byte, more bool) {
	first, more := <-b.queue.events
	if !more {
		return nil, false
	}
	events = append(events, first)
	size := b.size(first)
	if b.delivery.BatchSize <= 1 {
		return events, true
	}
	timer := time.NewTimer(b.delivery.BatchWait)
	defer timer.Stop()
	for len(events) < b.delivery.BatchSize && !(b.delivery.Truncate && size >= b.delivery.MaxBatchBytes) {
		select {
		case e, more := <-b.queue.events:
			if !more {
				return events, false
			}
			events = append(events, e)
			size += b.size(e)
		case <-timer.C:
			return events, true
		case <-ctx.Done():
			return events, true
		}
	}
	return events, true
}

// deliver writes a batch as soon as the rate limit allows.
func (b *sink) deliver(ctx context.Context, events [][]byte) {
	q := b.queue
	if q.limit != nil {
		_ = q.limit.Wait(ctx) // an error means that the server closes; then the batch is written at once
	}
	write := func() {
		if err := b.write(ctx, events); err != nil {
			b.failed(b.name, len(events), err)
		}
		for _, e := range events {
			q.bytes.Add(-int64(len(e)))
		}
	}
	if !q.async {
		write()
		return
	}
	q.writing.Go(write)
}

// close stops taking events, and waits until the queued ones are written. If ctx is cancelled before that, it calls
// cancel, so that the remaining writes do not wait for the webhook or the rate limit.
func (b *sink) close(ctx context.Context, cancel context.CancelFunc) error {
	if q := b.queue; q != nil {
		q.mu.Lock()
		q.closed = true
		close(q.events)
		q.mu.Unlock()
		stop := context.AfterFunc(ctx, cancel)
		<-q.done
		q.writing.Wait()
		stop()
	}
	if b.end == nil {
		return nil
	}
	if err := b.end(); err != nil {
		return fmt.Errorf("audit %s: %w", b.name, err)
	}
	return nil
}
