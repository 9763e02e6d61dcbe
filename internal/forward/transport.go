package forward

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Dial opens connections, as net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// EndingWith returns a transport for upgrades, whose connections are closed when ctx ends.
func EndingWith(ctx context.Context, t *http.Transport) *http.Transport {
	ending := t.Clone()
	ending.DialContext = func(dialing context.Context, network, address string) (net.Conn, error) {
		connection, err := t.DialContext(dialing, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { connection.Close() })
		}
		return connection, err
	}
	return ending
}

// NewTransport returns a transport with the settings of the reference's. Nil: a net.Dialer dials. Answers are passed on
// as they come: they are not decompressed.
func NewTransport(config *tls.Config, dial Dial) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Transport{
		DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: true, ForceAttemptHTTP2: true,
		// A server that is gone without a trace is noticed after 45 s.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}
