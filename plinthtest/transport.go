package plinthtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/access"
	"plinth/internal/httpapi"
)

// User is who sends a request.
type User struct {
	Name   string              `json:"name"`
	Groups []string            `json:"groups"` // system:authenticated is added
	UID    string              `json:"uid"`
	Extra  map[string][]string `json:"extra"`
}

// Transport returns the transport of a client of the plane: of its administrator, or of a user. Which user a request
// is from needs no credentials therefore. A request with an Authorization header is from whoever its token belongs
// to.
func (p *Plane) Transport(as ...User) http.RoundTripper {
	user := administrator
	if len(as) > 0 {
		user = as[0].identity()
	}
	return &transport{front: p.front, user: user}
}

// identity is the user as the server knows one.
func (u *User) identity() access.User {
	return access.User{Name: u.Name, UID: u.UID, Extra: u.Extra,
		Groups: append(slices.Clip(u.Groups), access.Authenticated)}
}

// Driver returns a transport of the administrator for the test itself: no fault concerns its requests, and they are
// not among Requests.
func (p *Plane) Driver() http.RoundTripper {
	return &transport{front: p.front, user: administrator, driver: true}
}

// transport calls the handler of a plane.
//
// The problem: a connection, even a pipe, has goroutines and buffers at both ends, and a TLS handshake. A plane for
// each test would pay for them each time, and nobody could say whether an event has arrived at its client or lies in
// a buffer on the way. So a request is a function call, on the goroutine of the client: its answer is in memory when
// RoundTrip returns. Only an answer that goes on, that of a watch, is written by another goroutine, into a pipe
// without a buffer: a write returns when the client has read it.
type transport struct {
	front  *front
	user   access.User
	driver bool
}

// caller is who sends a request in this process. It is in the context of the request.
type caller struct {
	user   access.User
	driver bool
}

type callerKey struct{}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if body == nil {
		body = http.NoBody
	}
	defer body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, &caller{t.user, t.driver}))
	served := r.Clone(ctx)
	served.Body, served.RequestURI, served.RemoteAddr = body, r.URL.RequestURI(), "127.0.0.1:1"
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/2.0", 2, 0
	if asked := httpapi.Parse(served); asked.Verb == "watch" {
		return t.stream(served, r, cancel)
	}
	defer cancel()
	w := &buffered{header: http.Header{}}
	if broken := serve(t.front, w, served); broken || r.Context().Err() != nil {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return nil, io.ErrUnexpectedEOF
	}
	w.WriteHeader(http.StatusOK) // unless there was another one
	return answerOf(r, w.code, w.sent, io.NopCloser(&w.body), int64(w.body.Len())), nil
}

// serve calls a handler and says whether it has broken the connection.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (broken bool) {
	defer func() {
		if failed := recover(); failed == http.ErrAbortHandler {
			broken = true
		} else if failed != nil {
			panic(failed)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

func answerOf(r *http.Request, code int, header http.Header, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, Body: body, ContentLength: length, Request: r,
	}
}

// buffered is the answer to a request, in memory.
type buffered struct {
	header http.Header
	sent   http.Header // header, as it was when the answer began
	code   int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header { return b.header }

func (b *buffered) WriteHeader(code int) {
	if b.code == 0 && code >= http.StatusOK {
		b.code, b.sent = code, b.header.Clone()
	}
}

func (b *buffered) Write(text []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(text)
}

// The answer is in memory: writes never wait, and the whole body is there to be read.
func (b *buffered) Flush()                           {}
func (b *buffered) SetWriteDeadline(time.Time) error { return nil }
func (b *buffered) SetReadDeadline(time.Time) error  { return nil }

// stream serves a watch on a goroutine of its own, until the client closes the body of the answer.
func (t *transport) stream(served, r *http.Request, cancel context.CancelFunc) (*http.Response, error) {
	if !t.front.enter() {
		cancel()
		return nil, errClosed
	}
	s := &stream{header: http.Header{}, began: make(chan struct{})}
	s.out, s.in = io.Pipe()
	s.cancel = cancel
	t.front.streams.add(s)
	go func() {
		defer t.front.leave()
		defer t.front.streams.remove(s)
		defer cancel()
		if broken := serve(t.front, s, served); broken {
			s.in.CloseWithError(io.ErrUnexpectedEOF)
		}
		s.WriteHeader(http.StatusOK)
		s.in.Close() // after CloseWithError, nothing
	}()
	select {
	case <-s.began:
		return answerOf(r, s.code, s.sent, s, -1), nil
	case <-r.Context().Done():
		s.Close()
		return nil, r.Context().Err()
	}
}

// stream is an answer that goes on. The handler writes it, and the client reads and closes it.
type stream struct {
	header http.Header
	sent   http.Header
	code   int
	began  chan struct{} // closed when code and sent are set
	once   sync.Once
	out    *io.PipeReader
	in     *io.PipeWriter
	cancel context.CancelFunc
	// reading says that the client waits for the next event: it has dealt with all that were written, as far as one
	// can see from here.
	reading atomic.Bool
}

func (s *stream) Header() http.Header { return s.header }

func (s *stream) WriteHeader(code int) {
	if code < http.StatusOK {
		return
	}
	s.once.Do(func() {
		s.code, s.sent = code, s.header.Clone()
		close(s.began)
	})
}

func (s *stream) Write(text []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return s.in.Write(text)
}

// Flush does nothing: a write has arrived when it returns.
func (s *stream) Flush() {}

// SetWriteDeadline ends the write that is under way if the time is over. Nothing sets a deadline in the future.
func (s *stream) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && !at.After(time.Now()) {
		s.in.CloseWithError(os.ErrDeadlineExceeded)
	}
	return nil
}

// SetReadDeadline does nothing: a watch has no body.
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// Read implements io.Reader for the client. After Close it returns io.EOF: client-go turns other errors into an event,
// and a goroutine that nobody ends (that of apimachinery's watch.Filter) may wait forever to pass it on. A bubble would
// not end then.
func (s *stream) Read(b []byte) (int, error) {
	s.reading.Store(true)
	n, err := s.out.Read(b)
	s.reading.Store(false)
	if err == io.ErrClosedPipe {
		err = io.EOF
	}
	return n, err
}

// Close ends the watch.
func (s *stream) Close() error {
	s.cancel()
	return s.out.CloseWithError(errClosed)
}

// errClosed is the error of a request to a plane whose test has ended.
var errClosed = errors.New("plinthtest: the control plane is closed")

// streams are the watches under way.
type streams struct {
	mu  sync.Mutex
	all map[*stream]bool
}

func (s *streams) add(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*stream]bool{}
	}
	s.all[one] = true
}

func (s *streams) remove(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, one)
}

// end breaks all watches off.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		one.cancel()
		one.in.CloseWithError(io.ErrUnexpectedEOF)
	}
}

// settled says whether each client waits for the next event.
func (s *streams) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all {
		if !one.reading.Load() {
			return false
		}
	}
	return true
}
