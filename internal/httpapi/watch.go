package httpapi

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/execution"
	"plinth/internal/invariants"
	"plinth/internal/wire"
	"plinth/object"
)

// eventBuffer is how many bytes of events are written at once. A watch holds such a buffer while its client does not
// read.
const eventBuffer = 16 << 10

// initialBuffer is how many bytes of initial events are written at once. They are a list, and their number is bounded
// as that of lists is, by slots or seats. To write them in fewer parts takes less time: the handler waits for the
// goroutines of the connection at each part, and holds its place meanwhile.
const initialBuffer = 64 << 10

var eventBuffers, initialBuffers = sync.Pool{New: newBuffer(eventBuffer)}, sync.Pool{New: newBuffer(initialBuffer)}

// watch is a GET of a collection whose answer continues with events (WATCH-1). Its steps:
//
//	startWatch   media type, options, Engine.Watch; an error here is the status of the answer
//	begin        sends the header and flushes it; from here on an error is an ERROR event
//	run          Next → write, in a loop; bookmarks at intervals; at the end one more
//	end          releases the cursor, the guard and the connection
//
// Two errors of startWatch are sent in the stream, too: a revision that is too old (410) or too new (504). The
// reference finds them after it has sent the header.
//
// Thousands of watches wait at any time, so the memory of a waiting watch matters: a goroutine with its stack, the
// Watch of the engine, a context with its timer, and a guard. It holds no buffer and no compressor.
//
// The frame of this function is on the stack of every waiting watch, below everything that the watch ever calls, and a
// Go stack doubles when it is too small. So the code that only starts a watch is a separate function (startWatch): with
// a few hundred bytes more in this frame, the stacks of all waiting watches would be twice as large.
func (h *Handler) watch(rs *requestState) error {
	w, err := h.startWatch(rs)
	if w == nil {
		return err
	}
	defer w.end()
	switch failed := w.begin(); {
	case errors.Is(failed, errWatchOver):
		return nil
	case failed != nil:
		return failed
	}
	if err == nil && !w.over() && w.late() {
		err = context.DeadlineExceeded // a watch whose time is over before it begins sends that as an event
	}
	if err == nil {
		err = w.run()
	}
	if err != nil && !errors.Is(err, errWatchOver) {
		_ = w.write(nil, wireError(err).Status()) // if that fails, the client has gone
	}
	return nil
}

// startWatch reads the options and starts the watch in the engine. If it returns a watch and an error, the error is
// sent in the stream.
func (h *Handler) startWatch(rs *requestState) (*openWatch, error) {
	media, err := rs.negotiate()
	if err != nil {
		return nil, err
	}
	params, err := rs.listOptions()
	if err != nil {
		return nil, err
	}
	rq := rs.request()
	table, err := rs.table(media, rq)
	switch {
	case err != nil:
		return nil, err
	case !media.Encoding.Streams():
		return nil, apierr.NewNotAcceptable(h.offer.StreamTypes())
	case media.Form == wire.AsPartials:
		return nil, notTheForm("you requested PartialObjectMetadataList, but the events of a watch are about single objects")
	}
	w := &openWatch{
		rs: rs, media: media, table: table, bookmarks: params.bookmarks,
		ends: time.Now().Add(params.lasts(h.MinRequestTimeout)),
	}
	w.compressed = params.streamsList() && rs.compresses() && !rs.overSocket()
	w.ctx = rs.ctx
	if rq.Resource.Stored.Convert != nil {
		w.ctx, w.stop = context.WithCancel(rs.ctx)
	}
	w.forget = context.AfterFunc(h.Closing, func() {
		h.Draining.turn()
		w.close()
	})
	h.Draining.opened(1)
	w.next()
	w.Watch, err = h.Engine.Watch(w.tick, rq, engine.WatchOptions{
		ListOptions: params.ListOptions, Bookmarks: params.bookmarks, SendInitialEvents: params.sendInitial,
	})
	if err != nil && !inStream(err) {
		w.end()
		return nil, err
	}
	// The parameters have been read. A watch lasts long, and would keep them in memory.
	rs.values, rs.parsed = nil, false
	return w, err
}

// inStream says whether an error of startWatch is sent as the first event (WATCH-3), and not as the status of the
// answer.
func inStream(err error) bool {
	status := wireError(err).Code
	return status == http.StatusGone || status == http.StatusGatewayTimeout
}

// lasts returns how long the watch may last: the client's timeoutSeconds, or a random time between least and twice
// least, so that watches that began together do not reconnect together.
func (p *listParams) lasts(least time.Duration) time.Duration {
	if p.timeout != nil && *p.timeout != 0 {
		return time.Duration(*p.timeout) * time.Second
	}
	return least + rand.N(least)
}

// errWatchOver ends a watch without an ERROR event: the client has disconnected, the server is closing, or the kind is
// no longer served in this form (engine.ErrOver).
var errWatchOver = errors.New("the watch is over")

// openWatch is a running watch and the connection that it writes to. It belongs to the goroutine of the request; only
// close is also called by the closing server and by the reader of a WebSocket, so mu guards the fields that close uses.
//
// A watch waits for four things at once: events, the next bookmark, its end, and its client. A select over channels
// and timers would take a second goroutine, which reads the events, and two timers per watch. Here one context, tick,
// ends at the time of the next bookmark or at the end, whichever is first, or when the client disconnects. Waiting for
// events ends with it, and run finds out the reason from the clock.
//
// tick ends the wait alone. Events that a webhook converts at that moment have left the engine's cursor already, so
// they are still converted, under ctx, and sent before the bookmark (WATCH-8).
type openWatch struct {
	*engine.Watch
	rs        *requestState
	media     wire.Media
	table     *wire.Table // nil: the events are not Tables
	printer   *wire.Events
	flusher   http.Flusher
	socket    *websocket.Conn // nil: events are written to the body
	guard     *guard
	bookmarks bool
	// A watch that begins with a streaming list is compressed to its end (MED-5). Each flush is a complete gzip member,
	// so that a waiting watch holds no compressor.
	compressed bool
	gz         *compressor // nil between flushes
	ends       time.Time
	// upTo is the revision of the last event or bookmark; forget unregisters close from Config.Closing.
	upTo      int64
	unflushed bool // the header
	unsent    int  // events that the engine has returned and that were not written yet
	forget    func() bool
	// tick ends when the client has disconnected, at the next bookmark, and at the end of the watch. It is the only
	// context that a waiting watch of most types holds.
	tick context.Context
	// ctx is that of the request; if the type is converted, one that also ends when the server closes, which must not
	// wait for a webhook.
	ctx context.Context

	mu     sync.Mutex // guards the following fields, which close changes
	cancel context.CancelFunc
	stop   context.CancelFunc // ends ctx; nil: ctx is that of the request
	closed bool
}

// next replaces tick by a context that ends at the next bookmark or at the end of the watch.
func (w *openWatch) next() {
	at := w.ends
	if w.bookmarks {
		if bookmark := time.Now().Add(w.rs.h.BookmarkInterval); bookmark.Before(at) {
			at = bookmark
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
	w.tick, w.cancel = context.WithDeadline(w.rs.ctx, at)
	if w.closed {
		w.cancel()
	}
}

// close ends the watch from another goroutine: the wait for events ends, and over returns true.
func (w *openWatch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.cancel != nil {
		w.cancel()
	}
	if w.stop != nil {
		w.stop()
	}
}

// late says whether the watch has lasted as long as it may.
func (w *openWatch) late() bool { return !time.Now().Before(w.ends) }

// over says whether the client has disconnected or the server is closing.
func (w *openWatch) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed || w.rs.ctx.Err() != nil
}

// end frees what the watch held.
func (w *openWatch) end() {
	if w.guard != nil {
		w.guard.end()
	}
	if w.socket != nil {
		w.closeSocket()
	}
	w.dropCompressor()
	if w.Watch != nil {
		w.Watch.Close()
	}
	w.forget()
	w.rs.h.Draining.opened(-1)
	w.close()
}

// begin sends the header, so that the client knows that the watch has started. Before initial events it is not flushed:
// they are, or run does it if there are none.
func (w *openWatch) begin() error {
	if w.Watch != nil && !w.initial() { // there are no initial events
		w.rs.dropSlot()
	}
	w.printer = wire.NewEvents(w.rs.resource, w.media, w.table)
	w.printer.Cache = w.rs.h.cache
	w.guard = w.rs.guard()
	if w.rs.overSocket() {
		var err error
		if w.socket, err = w.rs.upgrade(); err == nil {
			go w.listen()
		}
		return err
	}
	w.flusher = w.rs
	header := w.rs.w.Header()
	header["Content-Type"] = streamTypes[w.media.Encoding]
	if w.compressed {
		compressedHeader(header)
	}
	w.rs.WriteHeader(http.StatusOK)
	if w.initial() && w.stop == nil { // events come at once
		w.unflushed = true
		return nil
	}
	return w.flush(&wire.Parts{})
}

// initial says whether initial events are still to come.
func (w *openWatch) initial() bool { return w.Watch != nil && w.Revision() == 0 }

// run writes events until the watch is over. The caller sends its error in the stream.
func (w *openWatch) run() error {
	for {
		if w.rs.ticket != nil && w.Revision() != 0 { // the initial events have been sent
			w.rs.dropSlot()
		}
		events, err := w.NextUntil(w.ctx, w.tick)
		if err == nil && len(events) == 0 && w.unflushed && !w.initial() {
			err = w.flush(&wire.Parts{})
		}
		switch {
		case errors.Is(err, engine.ErrOver), err != nil && w.over():
			return errWatchOver
		case err != nil:
			return err
		}
		if w.unsent = len(events); len(events) > 0 {
			if err := w.write(events, object.Nil); err != nil {
				return err
			}
		}
		if w.tick.Err() == nil {
			continue
		}
		if w.over() {
			return errWatchOver
		}
		last := w.late()
		if err := w.bookmark(last); err != nil || last {
			return err
		}
		w.next()
	}
}

// bookmark sends a bookmark if the client has requested them (WATCH-4): at every interval, whether or not the revision
// has changed, and at the end only if the revision is newer than that of the last event or bookmark. It never passes an
// event that was not sent (WATCH-8).
func (w *openWatch) bookmark(last bool) error {
	revision := w.Revision()
	if invariants.Enabled && (w.unsent > 0 || revision != 0 && revision < w.upTo) {
		invariants.Fail("httpapi: a bookmark of revision %d with %d events unsent, the last one sent is of %d",
			revision, w.unsent, w.upTo)
	}
	if !w.bookmarks || revision == 0 || last && revision == w.upTo {
		return nil
	}
	return w.write([]engine.Event{{Type: engine.Bookmark, Revision: revision}}, object.Nil)
}

// write sends events, or a Status as an ERROR event. It holds its buffer only while it writes. Events are collected in
// the buffer, so that a burst takes one write; over a WebSocket each event is one message. Long objects are not copied
// (wire.Parts).
//
// Most events are not encoded here: printer.Append copies the bytes that another watch of the same media type has
// cached. Only the end of a batch is flushed: a flush for each event would be a TLS record and a system call each.
func (w *openWatch) write(events []engine.Event, failed object.Value) error {
	buffers, size := &eventBuffers, eventBuffer
	if w.rs.bounded() {
		buffers, size = &initialBuffers, initialBuffer
	}
	held := buffers.Get().(*[]byte)
	p := wire.Parts{Buf: *held}
	defer func() {
		if cap(p.Buf) <= 2*size { // a large object must not keep its buffer
			*held = p.Buf[:0]
		}
		buffers.Put(held)
	}()
	var err error
	total := 0
	var sizes interface{ Observe(bytes float64) }
	if of := w.rs.h.Metrics.EventSizes; of != nil && len(events) > 0 {
		r := w.rs.resource
		sizes = of(r.Group, r.Version, r.Name, r.Stored.Custom)
	}
	for i := range events {
		if p.Len() > 0 && (w.socket != nil || p.Len()+w.printer.Size(&events[i]) > cap(p.Buf)) {
			if err := w.send(&p); err != nil {
				return err
			}
			total += p.Len()
			p.Reset()
		}
		before := p.Len()
		if w.socket != nil { // a message is in one piece
			p.Buf, err = w.printer.Append(p.Buf, &events[i])
		} else {
			err = w.printer.AppendParts(&p, &events[i])
		}
		if err != nil {
			return err
		}
		if sizes != nil {
			sizes.Observe(float64(p.Len() - before))
		}
	}
	if !failed.IsNull() {
		if p.Buf, err = w.printer.AppendError(p.Buf, failed); err != nil {
			return err
		}
	}
	total += p.Len()
	if observe := w.rs.h.Metrics.Events; observe != nil {
		r := w.rs.resource
		observe(r.Group, r.Version, r.Name, len(events), total)
	}
	if err := w.flush(&p); err != nil {
		return err
	}
	if w.unsent = 0; len(events) > 0 {
		last := &events[len(events)-1]
		if w.upTo = last.Revision; last.InitialEnd && w.rs.h.Metrics.Listed != nil {
			r := w.rs.resource
			w.rs.h.Metrics.Listed(r.Group, r.Version, r.Name, w.rs.info.scope(), time.Since(w.rs.began))
		}
	}
	return nil
}

// send writes a part of a batch.
func (w *openWatch) send(p *wire.Parts) error {
	w.guard.arm(w.private(p))
	defer w.guard.disarm()
	return w.put(p)
}

// private is how many bytes the watch holds while it writes a part of a batch, and no other watch has. An event buffer
// that has not grown belongs to the fixed cost of a watch, as its stack does.
func (w *openWatch) private(p *wire.Parts) int {
	n := p.Private()
	if len(p.Buf) <= eventBuffer {
		n -= cap(p.Buf)
	}
	if w.compressed {
		n += compressorBytes
	}
	if w.Watch != nil { // nil: the watch has failed
		n += w.Made()
	}
	return n
}

// flush writes the last part of a batch and flushes the connection.
func (w *openWatch) flush(p *wire.Parts) error {
	w.unflushed = false
	w.guard.arm(w.private(p))
	defer w.guard.disarm()
	if p.Len() > 0 {
		if err := w.put(p); err != nil {
			return err
		}
	}
	if err := w.closeMember(); err != nil {
		return err
	}
	if w.flusher != nil {
		w.flusher.Flush()
	}
	return nil
}

// put writes a part of a batch to the connection, through the compressor if there is one.
func (w *openWatch) put(p *wire.Parts) (err error) {
	if w.compressed { // what is compressed is sent
		return w.putAll(p)
	}
	execution.Sending(w.rs.ctx, func() { err = w.putAll(p) })
	return err
}

// putAll is put, with a place or without.
func (w *openWatch) putAll(p *wire.Parts) error {
	if w.socket != nil {
		if err := w.message(p.Buf); err != nil {
			return errWatchOver
		}
		return nil
	}
	var out io.Writer = w.rs
	if w.compressed {
		if w.gz == nil {
			w.gz = newCompressor(w.rs)
		}
		out = w.gz
	}
	if err := write(out, p); err != nil {
		return errWatchOver
	}
	return nil
}

// closeMember ends the gzip member. The flush before it lets a client that does not read beyond a member's end read the
// whole member.
func (w *openWatch) closeMember() error {
	if w.gz == nil {
		return nil
	}
	err := errors.Join(w.gz.Flush(), w.gz.Close())
	w.dropCompressor()
	if err != nil {
		return errWatchOver
	}
	return nil
}

// dropCompressor gives the compressor back: its tables take much more memory than a waiting watch.
func (w *openWatch) dropCompressor() {
	if w.gz != nil {
		releaseCompressor(w.gz)
		w.gz = nil
	}
}
