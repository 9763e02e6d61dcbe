package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/execution"
)

// Reading bodies. The client decides how long the body of its request is and how fast it arrives, so both are bounded:
//
//	length of a body ≤ BodyLimit, else 413
//	memory of the bodies of all requests that hold no slot ≤ BodyMemory, else 429
//	time of a body ≤ BodyGrace + length / bodyRate, and ≤ the deadline of the request, else 504
//
// A request takes its slot after its body has arrived (limitInFlight). So the bodies that are being read, those of
// requests that wait for a slot, and those of requests that need none share the bound on memory. The number of slots
// and BodyLimit bound the others.

const (
	// firstRead is how much memory is allocated for a body before any of it has arrived, whatever length it claims: a
	// large Content-Length costs a client nothing.
	firstRead = 64 << 10
	// bodyRate is how many bytes per second must arrive once BodyGrace has passed.
	bodyRate = 16 << 10
	// maxSkipped is how much of an unwanted body is read so that the connection can be reused. net/http has the same
	// limit.
	maxSkipped = 256 << 10
)

// sendsBody says whether the request has a body.
func (rs *requestState) sendsBody() bool {
	return rs.r.ContentLength != 0 && rs.r.Body != nil && rs.r.Body != http.NoBody
}

// readsBody says whether the verb reads the body, which every write of the engine to a resource does, and no other
// request.
func (rs *requestState) readsBody() bool {
	return rs.info.isResource && rs.class == Mutating && rs.backend == nil
}

// readBody reads the whole body, up to the limit (WRITE-6), and takes the slot of the request. Until then the body
// counts as held memory, and if the request needs no slot, until its end.
func (rs *requestState) readBody() ([]byte, error) {
	if !rs.sendsBody() {
		return nil, nil
	}
	body, err := rs.receive()
	if err == nil {
		err = rs.acquire()
	}
	if err != nil || rs.bounded() { // the body is not used, or the slot bounds it
		rs.dropBody()
	}
	return body, err
}

// hold counts memory for the body, and refuses the request if there is no more.
func (rs *requestState) hold(bytes int64) error {
	rs.held += bytes
	if rs.h.bodies.Add(bytes) > rs.h.BodyMemory {
		rs.rejected = true
		return errTooMany()
	}
	return nil
}

// dropBody ends the counting of the body.
func (rs *requestState) dropBody() {
	if rs.held > 0 {
		rs.h.bodies.Add(-rs.held)
		rs.held = 0
	}
}

// receive reads the body into memory that doubles as it fills. The memory is counted from before its allocation on. Not
// counted is the previous buffer, half as large, which can be collected when its content has been copied.
func (rs *requestState) receive() ([]byte, error) {
	limit := rs.h.BodyLimit
	claimed := rs.r.ContentLength
	if claimed > limit {
		return nil, tooLarge(limit)
	}
	execution.AssertOutside(rs.ctx, "its client")
	received := rs.hurry()
	defer received.stop()
	size := int64(firstRead)
	if claimed > 0 && claimed < firstRead {
		size = claimed
	}
	size++ // one byte more, in which EOF is read without growing
	if err := rs.hold(size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size)
	for {
		n, err := rs.r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		received.bytes.Add(int64(n))
		switch {
		case int64(len(body)) > limit:
			return nil, tooLarge(limit)
		case err == io.EOF:
			rs.bodyRead = true
			return body, nil
		case err != nil:
			return nil, rs.unreadable(err)
		}
		if len(body) == cap(body) {
			more := min(size, limit+1-size) // doubles, but only up to the byte with which a body exceeds the limit
			size += more
			if err := rs.hold(more); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
	}
}

func tooLarge(limit int64) error { return apierr.NewTooLarge(fmt.Sprintf("limit is %d", limit)) }

// unreadable is the error for a body that could not be read. leaveBody does not wait for the rest of it.
func (rs *requestState) unreadable(err error) error {
	rs.bodyRead = true
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errBodyLate
	}
	return apierr.NewBadRequest("the request body could not be read: " + err.Error())
}

// skipBody reads a body that neither a verb nor a backend reads. On HTTP/1, net/http would read it before it sends the
// answer, and would wait for it without limit.
func (h *Handler) skipBody(rs *requestState) error {
	if rs.r.ProtoMajor != 1 || !rs.sendsBody() || rs.readsBody() || rs.backend != nil {
		return nil
	}
	received := rs.hurry()
	defer received.stop()
	var n int64
	var err error
	execution.Outside(rs.ctx, func() {
		execution.AssertOutside(rs.ctx, "its client")
		n, err = io.CopyN(io.Discard, rs.r.Body, maxSkipped+1)
	})
	switch {
	case err == io.EOF:
		rs.bodyRead = true
		return nil
	case err != nil:
		return rs.unreadable(err)
	}
	return tooLarge(n - 1)
}

// leaveBody limits how long net/http waits for the rest of a body when the request is refused, or was forwarded to a
// backend that has not read all of it. net/http reads the rest so that the connection can be reused. After the deadline
// of the request nothing waits any longer.
func (rs *requestState) leaveBody() {
	if rs.r.ProtoMajor != 1 || !rs.sendsBody() || rs.bodyRead {
		return
	}
	until := time.Now()
	if rs.ctx.Err() == nil {
		until = until.Add(rs.h.BodyGrace)
	}
	// Only the writers of tests have no deadlines, and do not wait.
	_ = http.NewResponseController(rs.w).SetReadDeadline(until)
}

// bodyTimer makes reading a body fail when the deadline of the request has passed or the body arrives too slowly.
// Setting a read deadline for every request would be simpler, but on HTTP/2 that wakes the goroutine of the connection
// each time.
//
//	due = began + BodyGrace + bytes / bodyRate, or the deadline of the request if that is earlier
//
// The reader only counts bytes. When the timer fires, it computes due again, and restarts if due has moved because
// bytes have arrived. So a fast body costs one timer, which never fires.
type bodyTimer struct {
	rs    *requestState
	began time.Time
	bytes atomic.Int64 // that have arrived

	mu    sync.Mutex // between check and stop
	timer *time.Timer
	ended bool
}

// hurry starts the timer for a body.
func (rs *requestState) hurry() *bodyTimer {
	t := &bodyTimer{rs: rs, began: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(time.Until(t.due()), t.check)
	return t
}

// due returns the time at which the body is late if no more bytes arrive.
func (t *bodyTimer) due() time.Time {
	at := t.began.Add(t.rs.h.BodyGrace + time.Duration(t.bytes.Load())*time.Second/bodyRate)
	if !t.rs.deadline.IsZero() && t.rs.deadline.Before(at) {
		return t.rs.deadline
	}
	return at
}

// check runs when the timer fires.
func (t *bodyTimer) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return // the request may have been answered, and the read deadline would end the next one on the connection
	}
	if left := time.Until(t.due()); left > 0 {
		t.timer.Reset(left)
		return
	}
	_ = http.NewResponseController(t.rs.w).SetReadDeadline(time.Now())
}

// stop ends the timer when the body has been read. Timer.Stop does not wait for a check that has begun, so check looks
// at ended under the lock.
func (t *bodyTimer) stop() {
	t.timer.Stop()
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
}
