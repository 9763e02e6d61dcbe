package plinthtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"plinth/object"
)

// hooks is a handler that answers as webhooks, and the hosts of these.
type hooks struct {
	handler http.Handler
	hosts   map[string]bool // HOST:PORT
}

// newHooks finds the hosts of the webhooks in configurations.
func newHooks(h http.Handler, texts [][]byte) (*hooks, error) {
	of := &hooks{handler: h, hosts: map[string]bool{}}
	for _, text := range texts {
		all, err := object.Documents(text)
		if err != nil {
			return nil, fmt.Errorf("Webhooks: %w", err)
		}
		for _, configuration := range all {
			for _, hook := range configuration.At("webhooks").Items() {
				host, err := hostOf(hook.At("clientConfig"))
				if err != nil {
					return nil, fmt.Errorf("Webhooks: %s: %w", hook.At("name").Str(), err)
				}
				of.hosts[host] = true
			}
		}
	}
	if len(of.hosts) == 0 {
		return nil, errors.New("Webhooks: the configurations have no webhook")
	}
	return of, nil
}

// hostOf is the host by which the server knows the webhook of a client configuration.
func hostOf(config object.Value) (string, error) {
	if service := config.At("service"); !service.IsNull() {
		port := service.At("port").Int()
		if port == 0 {
			port = 443
		}
		name := service.At("name").Str() + "." + service.At("namespace").Str() + ".svc"
		return net.JoinHostPort(name, fmt.Sprint(port)), nil
	}
	at, err := url.Parse(config.At("url").Str())
	if err != nil {
		return "", err
	}
	if at.Host == "" {
		return "", errors.New("its clientConfig has neither a service nor a URL")
	}
	return at.Host, nil
}

// webhooks returns who answers the requests to a host: the handler that was given for it. A service that no
// configuration names, such as that of a conversion webhook, is answered by the only handler that there is.
func (s *settings) webhooks(host string) http.RoundTripper {
	for _, of := range s.hooks {
		if of.hosts[host] {
			return of
		}
	}
	if name, _, err := net.SplitHostPort(host); err == nil && strings.HasSuffix(name, ".svc") && len(s.hooks) == 1 {
		return s.hooks[0]
	}
	return nil
}

// RoundTrip implements http.RoundTripper: it calls the handler.
func (of *hooks) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	defer served.Body.Close()
	served.RequestURI, served.Host, served.RemoteAddr = r.URL.RequestURI(), r.URL.Host, "127.0.0.1:1"
	w := &buffered{header: http.Header{}}
	done := make(chan bool, 1)
	go func() { done <- serve(of.handler, w, served) }()
	select {
	case broken := <-done:
		if broken {
			return nil, io.ErrUnexpectedEOF
		}
	case <-r.Context().Done(): // the handler need not look at the context
		return nil, r.Context().Err()
	}
	w.WriteHeader(http.StatusOK)
	return answerOf(r, w.code, w.sent, io.NopCloser(&w.body), int64(w.body.Len())), nil
}
