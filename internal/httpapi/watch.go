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
	"github.com/klauspost/compress/gzip"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/wire"
	"plinth/object"
)

// frameBuffer is how many bytes of events are written at once. A watcher that has stopped reading holds as much.
const frameBuffer = 16 << 10

var frameBuffers = sync.Pool{New: newBuffer(frameBuffer)}

// watch is a GET of a collection that goes on (WATCH-1). Its steps:
//
//	startWatch   media type, options, Engine.Watch; what fails here is the status of the answer
//	begin        the header is sent and flushed; from here on an error is an ERROR event
//	run          Next → write, again and again; at its times a bookmark; at the end one more
//	end          the cursor, the guard and the connection are released
//
// Two errors of the start are sent in the stream, too, as in the reference: a revision that is too old (410) or too new
// (504), since the reference finds them after it has sent the header.
//
// Thousands of watches wait at any time, so what one of them holds while it waits is what matters: its goroutine with
// its stack, the Watch of the engine, and one context. It holds no buffer, no compressor and no timer of its own.
//
// Its frame is on the stack of every waiting watch, below everything that the watch ever calls, and a Go stack
// doubles when it is too small. So what is needed only to start a watch is in a function of its own (startWatch):
// with some hundred bytes more here, the stacks of all waiting watches would be twice as large.
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
	if err == nil && !w.over() {
		err = w.tick.Err() // a watch whose time is over before it begins says so
	}
	if err == nil {
		err = w.run()
	}
	if err != nil && !errors.Is(err, errWatchOver) {
		_ = w.write(nil, wireError(err).Status()) // if that fails, the client has gone
	}
	return nil
}

// startWatch reads the options and starts the watch in the engine. An error beside a watch is sent in the stream.
func (h *Handler) startWatch(rs *requestState) (*watching, error) {
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
	w := &watching{
		rs: rs, media: media, table: table, bookmarks: params.bookmarks,
		ends: time.Now().Add(params.lasts(h.MinRequestTimeout)),
	}
	w.compressed = params.streamsList() && rs.compresses() && !rs.overSocket()
	w.forget = context.AfterFunc(h.Closing, w.close)
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

// inStream says whether an error at the start is sent as the first event (WATCH-3) and not as the status of the
// answer.
func inStream(err error) bool {
	status := wireError(err).Code
	return status == http.StatusGone || status == http.StatusGatewayTimeout
}

// lasts is how long the watch may last: as long as the client asks for, or a random time between least and twice
// least, so that watches that began together do not come back together.
func (p *listParams) lasts(least time.Duration) time.Duration {
	if p.timeout != nil && *p.timeout != 0 {
		return time.Duration(*p.timeout) * time.Second
	}
	return least + rand.N(least)
}

// errWatchOver ends a watch without an answer: the client has gone, or the watch is to end without an error.
var errWatchOver = errors.New("the watch is over")

// watching is a running watch and the connection that it writes to. The goroutine of the request uses it; close may
// be called by the closing server and by the reader of a WebSocket, so mu guards what close touches.
//
// A watch waits for four things at once: events, the next bookmark, its end, and its client. The obvious way, a
// select over channels and timers, takes a goroutine for the events and a timer for each watch. Here there is one
// context, tick, which ends at the time of the next bookmark or of the end, or when the client goes; the wait for
// events ends with it, and run looks at the clock to find out why.
type watching struct {
	*engine.Watch
	rs        *requestState
	media     wire.Media
	table     *wire.Table // nil: the media type is none
	frames    *wire.Frames
	flusher   http.Flusher
	socket    *websocket.Conn // nil: events go into the body
	guard     *guard
	bookmarks bool
	// A streaming list is compressed, and what follows it, too (MED-5): each flush is a gzip member of its own, so
	// that a waiting watch holds no compressor.
	compressed bool
	gz         *gzip.Writer // nil between flushes
	ends       time.Time
	// sent is the revision of the last event or bookmark; forget unregisters close from Config.Closing.
	sent   int64
	forget func() bool
	// tick ends when the client has gone, and when there is something to do by the passing of time: a bookmark, or
	// the end. It is the only context that a waiting watch holds.
	tick context.Context

	mu     sync.Mutex // guards the following, which the closing server uses, too
	cancel context.CancelFunc
	closed bool
}

// next makes the context that ends at the next time at which there is something to do.
func (w *watching) next() {
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
func (w *watching) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.cancel != nil {
		w.cancel()
	}
}

// over says whether the client has gone or the watch is to end.
func (w *watching) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed || w.rs.ctx.Err() != nil
}

// end frees what the watch held.
func (w *watching) end() {
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
	w.close()
}

// begin sends the header, so that the client knows that the watch runs.
func (w *watching) begin() error {
	w.frames = wire.NewFrames(w.rs.resource, w.media, w.table)
	w.frames.Cache = w.rs.h.cache
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
	return w.flush(nil)
}

// run writes events until the time is up or the client has gone. The error is sent in the stream.
func (w *watching) run() error {
	for {
		events, err := w.Next(w.tick)
		if errors.Is(err, engine.ErrOver) {
			return errWatchOver
		}
		if err != nil && w.tick.Err() == nil {
			return err
		}
		if len(events) > 0 {
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
		last := !time.Now().Before(w.ends)
		if err := w.bookmark(last); err != nil || last {
			return err
		}
		w.next()
	}
}

// bookmark sends a bookmark if the client asked for them (WATCH-4): at every interval, as a sign of life; at the end
// only if the revision is newer than that of the last one.
func (w *watching) bookmark(last bool) error {
	revision := w.Revision()
	if !w.bookmarks || revision == 0 || last && revision == w.sent {
		return nil
	}
	return w.write([]engine.Event{{Type: engine.Bookmark, Revision: revision}}, object.Nil)
}

// write sends events, or a Status as an ERROR event. It holds its buffer only while it writes. Events are collected
// in the buffer, so that a burst takes one write; over a WebSocket each event is a message of its own.
//
// The bytes of an event are mostly not made here: frames.Append copies those that another watch of the same media type
// has left in the record. A batch ends with a flush, and only there: a flush for each event would be a TLS record and a
// system call each.
func (w *watching) write(events []engine.Event, failed object.Value) error {
	held := frameBuffers.Get().(*[]byte)
	buf := *held
	defer func() {
		if cap(buf) <= 2*frameBuffer { // a large object must not keep its buffer
			*held = buf[:0]
		}
		frameBuffers.Put(held)
	}()
	var err error
	total := 0
	for i := range events {
		if len(buf) > 0 && (w.socket != nil || len(buf)+w.frames.Size(&events[i]) > cap(buf)) {
			if err := w.send(buf); err != nil {
				return err
			}
			total += len(buf)
			buf = buf[:0]
		}
		if buf, err = w.frames.Append(buf, &events[i]); err != nil {
			return err
		}
	}
	if len(events) > 0 {
		w.sent = events[len(events)-1].Revision
	}
	if !failed.IsNull() {
		if buf, err = w.frames.AppendError(buf, failed); err != nil {
			return err
		}
	}
	total += len(buf)
	if observe := w.rs.h.Metrics.Events; observe != nil {
		r := w.rs.resource
		observe(r.Group, r.Version, r.Name, len(events), total)
	}
	return w.flush(buf)
}

// send writes a part of a batch.
func (w *watching) send(b []byte) error {
	w.guard.arm()
	defer w.guard.disarm()
	return w.put(b)
}

// flush writes the last part of a batch and flushes the connection.
func (w *watching) flush(b []byte) error {
	w.guard.arm()
	defer w.guard.disarm()
	if len(b) > 0 {
		if err := w.put(b); err != nil {
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

// put writes bytes to the connection, through the compressor if there is one.
func (w *watching) put(b []byte) error {
	if w.socket != nil {
		if err := w.message(b); err != nil {
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
	if _, err := out.Write(b); err != nil {
		return errWatchOver
	}
	return nil
}

// closeMember ends the gzip member. The flush before makes all of it readable for a client that reads no further than
// the member's end.
func (w *watching) closeMember() error {
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
func (w *watching) dropCompressor() {
	if w.gz != nil {
		releaseCompressor(w.gz)
		w.gz = nil
	}
}
