package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"plinth/internal/egress"
)

const (
	// maxIdle is how many connections to one host a client keeps for later calls, and idleTime for how long.
	maxIdle  = 25
	idleTime = 90 * time.Second
	// pingAfter is how long nothing may come over an HTTP/2 connection before the webhook is asked whether it is there,
	// pingTimeout how long it may take to answer.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// newTransport returns a transport with the settings of client-go, which are those of the reference. It connects where
// the policy allows it.
func newTransport(settings *tls.Config, to egress.Policy) *http.Transport {
	dialer := to.Dialer(net.Dialer{Timeout: callTimeout, KeepAlive: 30 * time.Second})
	t := &http.Transport{
		Proxy: to.Proxy(), DialContext: dialer.DialContext, TLSClientConfig: settings,
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTime,
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

// toService is the http.RoundTripper of a client that calls a service. It sends each call to an endpoint that the
// service has at that time. To look for one only when a connection is opened would not do: the connections to an
// endpoint that is gone, or was the only one before others came, would be used as long as they last.
type toService struct {
	*http.Transport
	host     string // the host and port of the service, NAME.NAMESPACE.svc:PORT
	endpoint func(context.Context) (string, error)
}

// RoundTrip implements http.RoundTripper.
func (t *toService) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != t.host { // a redirect
		return t.Transport.RoundTrip(request)
	}
	address, err := t.endpoint(request.Context())
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // it is in memory
		}
		return nil, err
	}
	present, at := *request, *request.URL
	at.Host = address
	present.URL = &at
	if present.Host == "" {
		present.Host = t.host
	}
	response, err := t.Transport.RoundTrip(&present)
	if response != nil {
		response.Request = request
	}
	return response, err
}
