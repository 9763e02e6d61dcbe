package peerproxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"plinth/internal/access"
	"plinth/internal/discovery"
	"plinth/internal/forward"
	"plinth/object"
)

const (
	// After an error the documents are fetched again: first after minRetry, as the address of a server that has just
	// started may come after its Lease, and then after twice as long each time.
	minRetry = 100 * time.Millisecond
	maxRetry = 10 * time.Second
	// fetchTimeout limits what is fetched of one peer, and maxDocument the size of each document.
	fetchTimeout = 30 * time.Second
	maxDocument  = 32 << 20
)

// accept is how the reference asks, so that a server of an earlier release answers, too.
const accept = ownOnly + "," + aggregated + ",application/json"

const (
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	ownOnly    = aggregated + ";profile=nopeer"
)

// itself is the user of the requests of this server.
var itself = access.User{Name: "system:apiserver", UID: "system:apiserver", Groups: []string{"system:authenticated"}}

// documents are the groups that a peer serves at /api and /apis.
type documents struct{ core, groups []object.Value }

// Run knows what the peers serve, until ctx ends. own is the identity of this server. follow sends the identities of
// the peers whenever that may have changed, until its context ends.
func (p *Proxy) Run(ctx context.Context, own string, follow func(ctx context.Context, changed func([]string))) {
	changes := make(chan []string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, func(identities []string) {
			select { // only the newest counts
			case <-changes:
			default:
			}
			changes <- identities
		})
	}()
	defer func() {
		<-done
		if transport := p.transport.Load(); transport != nil {
			transport.CloseIdleConnections()
		}
	}()
	var identities []string
	failed := 0
	timer := time.NewTimer(0)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case identities = <-changes:
			failed = 0
		case <-timer.C:
		case <-p.expire:
			if next := p.expired(time.Now()); next > 0 && failed == 0 {
				timer.Reset(next)
			}
			continue
		}
		next := p.expired(time.Now())
		if err := p.sync(ctx, own, identities); err != nil && ctx.Err() == nil {
			next = min(maxRetry, minRetry<<min(failed, 10))
			if failed++; failed == 5 { // about three seconds
				p.Logger.Warn("it is not known what another server serves, trying again", "error", err)
			}
		} else {
			failed = 0
		}
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// sync finds out what the peers serve. One that does not answer serves what it said last, for as long as it is among
// them: a request for it is to be 503, and not 404, by which a client would take its objects to be gone.
func (p *Proxy) sync(ctx context.Context, own string, identities []string) (err error) {
	served := map[string]documents{}
	for _, identity := range identities {
		d, failed := p.fetch(ctx, identity)
		if failed != nil {
			err = fmt.Errorf("%s: %w", identity, failed)
			if last, known := p.last[identity]; known {
				d = last
			}
		}
		if len(d.core) > 0 || len(d.groups) > 0 {
			served[identity] = d
		}
	}
	if ctx.Err() == nil {
		p.last = served
		p.known.Store(index(own, served))
	}
	return err
}

// fetch returns what a peer serves; with an error, it may be a part of that.
func (p *Proxy) fetch(ctx context.Context, identity string) (d documents, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	address, err := p.addressOf(ctx, identity)
	if err != nil {
		p.SyncFailed("hostport_resolution")
		return d, err
	}
	for path, into := range map[string]*[]object.Value{"/api": &d.core, "/apis": &d.groups} {
		groups, failed := p.get(ctx, address, path)
		if failed != nil {
			p.SyncFailed("fetch_discovery")
			err = failed
		}
		*into = groups
	}
	return d, err
}

// get asks a peer for the groups that it serves itself.
func (p *Proxy) get(ctx context.Context, address, path string) ([]object.Value, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set(Forwarded, "true")
	forward.Identify(request.Header, &itself)
	answer, err := p.transport.Load().RoundTrip(request)
	if err != nil {
		p.Rerouted(http.StatusServiceUnavailable, "", "", "")
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	p.Rerouted(answer.StatusCode, "", "", "")
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status code %d", path, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxDocument {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxDocument)
	}
	list, err := object.ParseJSON(body)
	if err != nil {
		return nil, err
	}
	if kind := list.Value.At("kind").Str(); kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("%s: %q is no APIGroupDiscoveryList", path, kind)
	}
	return discovery.GroupsOf(list.Value), nil
}
