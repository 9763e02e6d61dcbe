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
)

// A backend is a line of steps: encode, cut what is too large, and then write, at once or by way of a queue.
type backend struct {
	name     string // as the reference's metrics call it: "log" or "webhook"
	counters *Counters
	logger   *slog.Logger
	delivery Delivery
	encode   func(e *event, dst []byte) []byte
	overhead int64 // bytes of the type, which encode leaves out and the limit on events counts
	// write delivers encoded events. It may be called by several goroutines.
	write func(ctx context.Context, events [][]byte) error
	end   func() error // nil: there is nothing to close
	queue *queue       // nil: write is called at once
	told  atomic.Int64 // when errors were last logged: the second
}

// encoded keeps the buffers of events that are written at once.
var encoded = sync.Pool{New: func() any { return new(make([]byte, 0, 2<<10)) }}

// maxKept is how large a buffer is kept for the next event.
const maxKept = 64 << 10

// process takes an event. It is not ok if the event is not written down and the request has to be refused for it.
func (b *backend) process(e *event) (ok bool) {
	if b.queue != nil {
		if text, ok := b.fit(nil, e); ok {
			b.enqueue(text)
		}
		return true
	}
	held := encoded.Get().(*[]byte)
	text, ok := b.fit((*held)[:0], e)
	if ok {
		if err := b.write(context.Background(), [][]byte{text}); err != nil {
			b.failed(b.name, 1, err)
			ok = false
		}
	} else {
		ok = true // as in the reference nobody is refused for an event that is too large
	}
	if cap(text) <= maxKept {
		*held = text
	}
	encoded.Put(held)
	return ok || b.delivery.Mode != blockingStrict
}

// truncated says that an event has lost its bodies.
const truncated = "audit.k8s.io/truncated"

var errTooLarge = errors.New("event is too large even after truncating")

// fit encodes an event, without its bodies where it is too large with them. Not ok says that it is too large in any
// case.
func (b *backend) fit(dst []byte, e *event) (text []byte, ok bool) {
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

func (b *backend) size(text []byte) int64 { return int64(len(text)) + b.overhead }

// failed counts events that are lost, and logs it once a second at most. The events themselves are not logged: they may
// hold bodies.
func (b *backend) failed(plugin string, events int, err error) {
	b.counters.failed(plugin, events)
	if second := time.Now().Unix(); b.told.Swap(second) != second {
		b.logger.Error("audit events are lost", "plugin", plugin, "events", events, "error", err)
	}
}

// maxQueued bounds the bytes of the events in a queue, whatever their number: bodies may be of megabytes.
const maxQueued = 256 << 20

var (
	errBlocked = errors.New("audit buffer queue blocked")
	errClosed  = errors.New("audit backend shut down")
)

// queue holds the events of a backend in batch mode. One goroutine takes them out.
//
//	bytes = sum of len(e) for the events in the channel and in batches that are being written
type queue struct {
	events  chan []byte
	bytes   atomic.Int64
	limit   *rate.Limiter // nil: none
	async   bool          // batches are written beside each other
	writing sync.WaitGroup
	done    chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex // held for reading while an event goes in, so that none goes into a closed channel
	closed bool
}

func newQueue(d *Delivery, async bool) *queue {
	q := &queue{events: make(chan []byte, d.BufferSize), async: async, done: make(chan struct{})}
	if d.Throttle {
		q.limit = rate.NewLimiter(rate.Limit(d.QPS), d.Burst)
	}
	return q
}

// enqueue puts an event into the queue. There is no waiting: what finds no place is dropped.
func (b *backend) enqueue(text []byte) {
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

// run takes events out of the queue and writes them in batches, until the queue is closed and empty. ctx ends the
// waiting, and the writing.
func (b *backend) run(ctx context.Context) {
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

// collect waits for a batch: until it is full, or until it has waited for long enough, or until there is nothing to
// wait for any more.
func (b *backend) collect(ctx context.Context) (events [][]byte, more bool) {
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

// deliver writes a batch, when the limit on batches allows it.
func (b *backend) deliver(ctx context.Context, events [][]byte) {
	q := b.queue
	if q.limit != nil {
		_ = q.limit.Wait(ctx) // it fails when the server closes, and then nothing waits any more
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

// close takes no more events and waits until those that are there are delivered, or ctx ends; then it gives them up
// with cancel.
func (b *backend) close(ctx context.Context, cancel context.CancelFunc) error {
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
