package webhook

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxIdle is how many connections a client keeps for later calls, and idleTime for how long.
	maxIdle  = 25
	idleTime = 90 * time.Second
	// maxHeader is the limit of the headers of a response in bytes.
	maxHeader = 1 << 20
	// maxInterim is how many responses with a code below 200 may precede the response.
	maxInterim = 5
	// bufferSize is that of the buffers of a connection: most requests are one TLS record then, which has 16 KiB at most.
	bufferSize = 16 << 10
)

// transport is the http.RoundTripper of a client.
//
// The problem: admission asks webhooks within a request, and in http.Transport a call passes from the goroutine of its
// caller to one that writes, to one that reads, and back; each step may have to wake a thread. On a server that is not
// busy, that is a quarter of the cost of a call. So a call over HTTP/1.1 and TLS, which is nearly every one, is written
// and read by its caller:
//
//	a connection is idle, or belongs to one call
//
// All others go through http.Transport: those to a webhook that chooses HTTP/2, and those through a proxy.
//
// Nobody reads from an idle connection, so it is not noticed at once that the webhook has closed it. Before a call it
// is asked whether anything has come on it, be it the end, and then another one is taken. What http.Transport does with
// a POST holds here, too: it is made again, over another connection, only if its connection was idle before and nothing
// was written to it. A webhook that closes a connection at the very moment at which a call begins makes the call fail
// with both, and no webhook gets a call twice.
type transport struct {
	other *http.Transport
	// http2 says that the webhook has chosen HTTP/2.
	http2 atomic.Bool

	mu    sync.Mutex
	idle  []*connection // by last use, the latest last; len(idle) ≤ maxIdle
	sweep *time.Timer   // closes those that were idle for idleTime; nil: there are none
}

// connection is an open connection to a webhook.
type connection struct {
	net.Conn
	plain net.Conn         // below TLS
	limit io.LimitedReader // of Conn: what one response may have
	in    *bufio.Reader    // of limit
	out   *bufio.Writer    // to the connection itself, which counts
	wrote bool             // something of the call was written, as far as that can be known
	since time.Time        // when it became idle
}

// Write notes that something was written.
func (c *connection) Write(p []byte) (n int, err error) {
	n, err = c.Conn.Write(p)
	c.wrote = c.wrote || n > 0
	return n, err
}

// RoundTrip implements http.RoundTripper. The body of a response that it has read itself is in memory.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.http2.Load() || !t.direct(request) {
		return t.other.RoundTrip(request)
	}
	for c := t.take(); c != nil; c = t.take() {
		response, err := t.call(c, request)
		if err == nil || c.wrote || request.Context().Err() != nil || request.GetBody == nil {
			return response, err
		}
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = body
	}
	c, err := t.dial(request.Context(), target(request.URL), request.URL.Hostname())
	switch {
	case err != nil:
		if request.Body != nil {
			_ = request.Body.Close() // it is in memory
		}
		return nil, err
	case c == nil:
		return t.other.RoundTrip(request)
	}
	return t.call(c, request)
}

// direct says whether a request goes to the webhook itself, over TLS.
func (t *transport) direct(request *http.Request) bool {
	if request.URL.Scheme != "https" || !canTell {
		return false
	}
	if t.other.Proxy == nil {
		return true
	}
	proxy, err := t.other.Proxy(request)
	return proxy == nil && err == nil
}

// dial opens a connection; nil if the webhook chooses HTTP/2.
func (t *transport) dial(ctx context.Context, address, host string) (*connection, error) {
	plain, err := t.other.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	config := t.other.TLSClientConfig.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	config.NextProtos = []string{"http/1.1"}
	if t.other.Protocols.HTTP2() {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	secure := tls.Client(plain, config)
	within, cancel := context.WithTimeout(ctx, t.other.TLSHandshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(within); err != nil {
		_ = plain.Close()
		if within.Err() != nil && ctx.Err() == nil {
			err = errors.New("net/http: TLS handshake timeout") // as http.Transport says it
		}
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		t.http2.Store(true)
		_ = secure.Close()
		return nil, nil
	}
	c := &connection{Conn: secure, plain: plain, limit: io.LimitedReader{R: secure}}
	c.in, c.out = bufio.NewReader(&c.limit), bufio.NewWriterSize(c, bufferSize)
	return c, nil
}

// call sends a request and reads the response. The connection is kept if it can be used again.
func (t *transport) call(c *connection, request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	// The end of the request interrupts a read or write in progress.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	response, err := c.exchange(request)
	if uninterrupted := stop(); uninterrupted && err == nil && !response.Close {
		t.put(c)
	} else {
		_ = c.Close()
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return response, err
}

// exchange is call without its end. It sets response.Close if the connection cannot be used again.
func (c *connection) exchange(request *http.Request) (response *http.Response, err error) {
	c.wrote = false
	sent := request.Write(c.out)
	if sent == nil {
		sent = c.out.Flush()
	}
	if !c.wrote {
		return nil, sent
	}
	// A webhook may answer and hang up before it has read the whole request, so there may be a response in any case.
	c.limit.N = maxHeader
	if _, err := c.in.Peek(1); err != nil {
		return nil, cmp.Or(sent, err)
	}
	for interim := 0; ; interim++ {
		response, err = http.ReadResponse(c.in, request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode >= http.StatusOK {
			break
		}
		if interim == maxInterim {
			return nil, errors.New("too many 1xx informational responses")
		}
	}
	c.limit.N = math.MaxInt64
	text, err := readBody(response)
	if err != nil {
		return nil, err
	}
	response.Body = memory{bytes.NewReader(text), text}
	response.Close = response.Close || sent != nil || len(text) > maxResponse || c.in.Buffered() > 0
	return response, nil
}

// take returns the idle connection that was used last and is still open; nil if there is none.
func (t *transport) take() *connection {
	for {
		c := t.last()
		if c == nil || open(c.plain) {
			return c
		}
		_ = c.Close()
	}
}

// last takes the idle connection that was used last.
func (t *transport) last() *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.idle)
	if n == 0 {
		return nil
	}
	c := t.idle[n-1]
	t.idle = t.idle[:n-1]
	return c
}

// put makes a connection idle.
func (t *transport) put(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) == maxIdle {
		go c.Close() // which may write
		return
	}
	c.since = time.Now()
	t.idle = append(t.idle, c)
	if t.sweep == nil {
		t.sweep = time.AfterFunc(idleTime, func() { t.expire(time.Now()) })
	}
}

// expire closes the connections that are idle for idleTime.
func (t *transport) expire(now time.Time) {
	t.mu.Lock()
	n := 0
	for n < len(t.idle) && now.Sub(t.idle[n].since) >= idleTime {
		n++
	}
	old := slices.Clone(t.idle[:n])
	t.idle = slices.Delete(t.idle, 0, n)
	t.sweep = nil
	if len(t.idle) > 0 {
		t.sweep = time.AfterFunc(idleTime-now.Sub(t.idle[0].since), func() { t.expire(time.Now()) })
	}
	t.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// closeIdle closes all idle connections.
func (t *transport) closeIdle() {
	t.mu.Lock()
	old := t.idle
	t.idle = nil
	t.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// CloseIdleConnections is called by http.Client's method of this name.
func (t *transport) CloseIdleConnections() {
	t.closeIdle()
	t.other.CloseIdleConnections()
}
