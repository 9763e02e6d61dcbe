package httpapi

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Draining is how the handlers of a server that is about to end get rid of their clients, so that these go on at
// another server without an error. All planes of a server share one. The server closes in this order:
//
//	Refuse   new requests get 429 with Retry-After, on a connection that ends: clients repeat them elsewhere
//	Pace     watches end one after another (when Config.Closing ends), so that clients do not all come back at once
//	Idle     requests under way are finished, while the port is still open for those that are refused
//
// as kube-apiserver does with --shutdown-send-retry-after and --shutdown-watch-termination-grace-period.
type Draining struct {
	refusing atomic.Bool
	underway atomic.Int64 // requests that Refuse would refuse, other than those that last long
	watches  atomic.Int64
	pace     atomic.Pointer[rate.Limiter] // nil: watches end at once
}

// leastPace is how many watches end in a second at least, as in the reference.
const leastPace = 200

// Refuse has later requests refused.
func (d *Draining) Refuse() { d.refusing.Store(true) }

// Pace has the watches end one after another, within a time.
func (d *Draining) Pace(within time.Duration) {
	perSecond := max(leastPace, float64(d.watches.Load())/within.Seconds())
	d.pace.Store(rate.NewLimiter(rate.Limit(perSecond), 1))
}

// Idle waits until no requests are under way but those that last long, or until ctx ends.
func (d *Draining) Idle(ctx context.Context) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for d.underway.Load() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// retryAfter is how many seconds a refused client waits, as in the reference.
const retryAfter = "5"

// errEnding refuses a request while the server ends. Its answer is a text, as in the reference.
type errEnding struct{}

func (errEnding) Error() string { return "The apiserver is shutting down, please try again later." }

// neverRefused are the paths that are served to the end.
var neverRefused = []string{"/readyz", "/livez", "/healthz", "/metrics"}

// refuseAtTheEnd refuses requests while the server ends, and counts those under way.
func (h *Handler) refuseAtTheEnd(rs *requestState) error {
	if h.Draining == nil {
		return nil
	}
	for _, path := range neverRefused {
		if strings.HasPrefix(rs.r.URL.Path, path) {
			return nil
		}
	}
	if rs.class != LongRunning {
		h.Draining.underway.Add(1) // before the look at refusing: Idle waits for who is not refused
		rs.drained = true
	}
	if h.Draining.refusing.Load() {
		rs.endDrained() // clients that come again and again keep no server from ending
		return errEnding{}
	}
	return nil
}

// endDrained ends what refuseAtTheEnd has counted.
func (rs *requestState) endDrained() {
	if rs.drained {
		rs.drained = false
		rs.h.Draining.underway.Add(-1)
	}
}

// refuseEnding answers a request that was refused as the server ends.
func (rs *requestState) refuseEnding(err errEnding) {
	rs.w.Header().Set("Connection", "close") // a GOAWAY frame on HTTP/2
	rs.w.Header().Set("Retry-After", retryAfter)
	http.Error(rs, err.Error(), http.StatusTooManyRequests)
}

// opened counts a watch.
func (d *Draining) opened(delta int64) {
	if d != nil {
		d.watches.Add(delta)
	}
}

// turn waits until it is the turn of a watch to end.
func (d *Draining) turn() {
	if d == nil {
		return
	}
	if pace := d.pace.Load(); pace != nil {
		_ = pace.Wait(context.Background()) // a burst of one is never refused
	}
}
