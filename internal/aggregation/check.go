package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"plinth/internal/access"
	"plinth/internal/execution"
	"plinth/internal/forward"
	"plinth/object"
)

// itself is the user of the requests that this server sends to backends on its own behalf.
var itself = access.User{Name: "system:kube-aggregator", Groups: []string{access.Masters}}

const (
	// checks is how many requests a check sends at the same time. One that succeeds is enough.
	checks = 5
	// checkTimeout is how long one of them may take.
	checkTimeout = 5 * time.Second
)

// Check asks the backend of an APIService for the document of its group version. The error says what is wrong, in the
// words of the reference; nil: the backend is available. The other error is for the caller: nothing could be asked.
func (a *Aggregator) Check(ctx context.Context, obj object.Value) (wrong, err error) {
	spec := obj.At("spec")
	key := groupVersion{spec.At("group").Str(), spec.At("version").Str()}
	b := a.serverOf(spec)
	if r := a.now()[key]; r != nil && r.server.spec == b.spec {
		b = r.server // with its connections
	}
	transport, err := b.connect()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport, Timeout: checkTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, checks)
	for range checks {
		go func() { results <- b.ask(ctx, client, key.path()) }()
	}
	for range checks {
		if wrong = <-results; wrong == nil {
			return nil, nil
		}
	}
	transport.CloseIdleConnections()
	return wrong, nil
}

// path is the path of the group version.
func (gv groupVersion) path() string {
	if gv.group == "" {
		return "/api/" + gv.version
	}
	return "/apis/" + gv.group + "/" + gv.version
}

// ask sends one request of a check.
func (b *server) ask(ctx context.Context, client *http.Client, path string) error {
	address, err := b.of.Endpoint(ctx, b.namespace, b.name, b.port)
	if err != nil {
		return err
	}
	location := &url.URL{Scheme: "https", Host: address, Path: path}
	failing := func(err error) error { return fmt.Errorf("failing or missing response from %v: %w", location, err) }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return failing(err)
	}
	forward.Identify(request.Header, &itself)
	execution.AssertOutside(ctx, "another server")
	answer, err := client.Do(request)
	if err != nil {
		return failing(err)
	}
	_ = answer.Body.Close() // it is not read
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return failing(fmt.Errorf("bad status from %v: %d", location, answer.StatusCode))
	}
	return nil
}
