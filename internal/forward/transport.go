package forward

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"plinth/internal/egress"
)

// Dial opens connections, as net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// maxHead is how many bytes another server may send before its answer to an upgrade is known: the head, what comes with
// it, and the handshake of TLS. The reference's libraries keep the head in memory, and have no limit of their own.
const maxHead = 1 << 20

// Upgrading returns a transport for one connection that is to be upgraded. The connection is closed when ctx ends, and
// may send no more than maxHead bytes before upgraded is called.
func Upgrading(ctx context.Context, t *http.Transport) (_ *http.Transport, upgraded func()) {
	lifted := new(atomic.Bool)
	transport := t.Clone()
	transport.DialContext = func(dialing context.Context, network, address string) (net.Conn, error) {
		connection, err := t.DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { connection.Close() })
		return &upgrading{Conn: connection, lifted: lifted, left: maxHead}, nil
	}
	return transport, func() { lifted.Store(true) }
}

// upgrading is a connection of which a limited number of bytes can be read until the limit is lifted.
type upgrading struct {
	net.Conn
	lifted *atomic.Bool
	left   int // it has one reader
}

func (u *upgrading) Read(p []byte) (int, error) {
	if u.lifted.Load() {
		return u.Conn.Read(p)
	}
	if u.left <= 0 {
		return 0, fmt.Errorf("the answer to the upgrade has a header of more than %d bytes", maxHead)
	}
	n, err := u.Conn.Read(p)
	u.left -= n
	return n, err
}

// NewTransport returns a transport with the settings of the reference's, which connects where the policy allows it.
// dial may be nil: a net.Dialer dials. Answers are passed on as they come: they are not decompressed.
func NewTransport(config *tls.Config, dial Dial, to egress.Policy) *http.Transport {
	return &http.Transport{
		DialContext:     to.Dial(dial, net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}),
		TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: true, ForceAttemptHTTP2: true,
		// A server that is gone without a trace is noticed after 45 s.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}
