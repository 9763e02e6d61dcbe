// Package coalesce writes the two parts of a small answer at once.
//
// Over HTTP/2 an answer is a frame with its headers and a frame with its body, and net/http writes out each of them by itself:
// two system calls for the server, two packets, and a client that is woken for headers without a body. For a small answer
// that is more work than the answer. So the handler announces that a body follows, and the connection holds back the headers
// until it comes.
//
// The connection is below TLS: what it sees are records, and it cannot tell whose they are. When several answers are under
// way, it may hold back another small record than the one that was meant. That does no harm: the order of bytes stays, each
// write lets go of what was held, and nothing is held for longer than twice [hold].
package coalesce

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/lull"
)

const (
	// small bounds the writes that are held back: headers take about 150 bytes.
	small = 512
	// hold is how long a write is held back, or twice that, when nothing follows it: the client does not let more of the body
	// through, or has gone.
	hold = 5 * time.Millisecond
)

// Listen makes connections that hold back what they are told to.
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c), nil
}

type key struct{}

// Remember is an http.Server's ConnContext, by which Announce finds the connection of a request.
func Remember(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, key{}, c)
	}
	return ctx
}

// Announce says that the next small write to the connection of a request is followed by another one at once.
func Announce(ctx context.Context) {
	if c, ok := ctx.Value(key{}).(*conn); ok {
		c.announced.Store(true)
	}
}

// conn holds back a write when another one has been announced to follow.
type conn struct {
	net.Conn
	announced atomic.Bool
	pause     *lull.Timer // lets go of what is held back

	mu     sync.Mutex
	held   []byte
	parts  [2][]byte // join's, kept with the connection so that it makes no garbage
	both   net.Buffers
	failed error // why a held write could not be written; the next one is told
}

func newConn(c net.Conn) *conn {
	held := &conn{Conn: c}
	held.pause = lull.New(hold, held.letGo)
	return held
}

// Write writes b behind what was held back, or holds it back.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return 0, c.failed
	case len(c.held) > 0:
		return c.join(b)
	case c.announced.CompareAndSwap(true, false) && len(b) <= small:
		c.held = append(c.held, b...)
		c.pause.Touch()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// join writes what was held back, and b behind it. The caller holds mu.
func (c *conn) join(b []byte) (int, error) {
	before := len(c.held)
	c.parts = [2][]byte{c.held, b}
	c.both = c.parts[:]
	n, err := c.both.WriteTo(c.Conn) // one system call, where it is TCP; empties both
	c.held = c.held[:0]
	return max(int(n)-before, 0), err
}

// letGo writes what has been held back for a while.
func (c *conn) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > 0 {
		_, c.failed = c.join(nil)
	}
}

// Close closes the connection. What is held back belongs to an answer that nobody is going to read the rest of.
func (c *conn) Close() error {
	c.pause.Stop()
	return c.Conn.Close()
}
