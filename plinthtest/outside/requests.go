package outside

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// On selects requests of the code under test. Empty members select all.
type On struct {
	Verb      string `json:"verb"`     // as in Request.Verb; "write" is all that change something
	Resource  string `json:"resource"` // "deployments", or with a subresource "deployments/status"
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	User      string `json:"user"` // or field manager, or program, as for Log.By
	Nth       int    `json:"nth"`  // only the nth of the requests that match, from 1; 0: all
}

// Effect is what happens to a request.
type Effect struct {
	Type    string  `json:"type"`
	Code    int     `json:"code"`
	Reason  string  `json:"reason"`
	Message string  `json:"message"`
	Seconds float64 `json:"seconds"`
	After   int     `json:"after"`
}

// The effects without parameters.
var (
	// Conflict refuses a write: 409, the object has been modified.
	Conflict = Effect{Type: "Conflict"}
	// TooManyRequests refuses a request: 429, to be tried again after a second.
	TooManyRequests = Effect{Type: "TooManyRequests"}
	// CommitThenTimeout carries a write out, and answers that it has timed out: 504.
	CommitThenTimeout = Effect{Type: "CommitThenTimeout"}
	// DropWatch breaks the connection of a watch instead of sending its next events.
	DropWatch = Effect{Type: "DropWatch"}
	// Expire410 refuses a watch, or a list: 410, its resourceVersion is too old.
	Expire410 = Effect{Type: "Expire410"}
	// StaleReads answers a GET or a list as it was before the last change.
	StaleReads = Effect{Type: "StaleReads"}
)

// Status refuses a request with a status code, a reason such as "ServiceUnavailable", and a message.
func Status(code int, reason, message string) Effect {
	return Effect{Type: "Status", Code: code, Reason: reason, Message: message}
}

// Latency delays a request.
func Latency(d time.Duration) Effect { return Effect{Type: "Latency", Seconds: d.Seconds()} }

// DropWatchAfter is DropWatch after so many events have been sent, or batches of events that came together.
func DropWatchAfter(events int) Effect { return Effect{Type: "DropWatch", After: events} }

// Rule is faults for some requests, until it is removed.
type Rule struct {
	plane *Plane
	path  string
}

// Fault lets the effects happen to the requests that match. If several rules concern a request, all their effects
// happen, and the first rule that refuses it decides how.
func (p *Plane) Fault(on On, effects ...Effect) *Rule {
	p.t.Helper()
	var made struct{ Fault string }
	p.must(http.MethodPost, "/faults", map[string]any{"on": on, "effects": effects}, &made)
	return &Rule{p, "/faults/" + made.Fault}
}

// Remove removes the rule.
func (r *Rule) Remove() { r.plane.must(http.MethodDelete, r.path, nil, nil) }

// Hits is how many requests the rule has concerned.
func (r *Rule) Hits() int {
	var answer struct{ Hits int }
	r.plane.must(http.MethodGet, r.path, nil, &answer)
	return answer.Hits
}

// Request is a request of the code under test, as it was recorded.
type Request struct {
	Time    time.Time `json:"time"`
	User    string    `json:"user"`    // "" if the credentials were not valid
	Agent   string    `json:"agent"`   // the User-Agent
	Manager string    `json:"manager"` // the field manager: of the request, or the first word of Agent
	// Verb is that of authorization (get, list, watch, create, update, patch, delete, deletecollection), or apply.
	Verb string `json:"verb"`
	Path string `json:"path"`
	// Group to Subresource are "" outside of the resources.
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"` // of a create it may end with "*": it is generated
	DryRun      bool   `json:"dryRun"`
	Code        int    `json:"code"` // the status of the answer; 0: it has not come, or the connection broke
}

// String is a line about the request, without its time: "update apps/deployments/status default/web 200".
func (q *Request) String() string {
	parts := []string{q.Group, q.Resource, q.Subresource}
	if q.Group == "" {
		parts = parts[1:]
	}
	resource := strings.TrimSuffix(strings.Join(parts, "/"), "/")
	if q.Resource == "" {
		resource = q.Path
	}
	name := q.Name
	if q.Namespace != "" && q.Resource != "namespaces" {
		name = q.Namespace + "/" + q.Name
	}
	words := []string{q.Verb, resource}
	if name != "" {
		words = append(words, name)
	}
	if q.DryRun {
		words = append(words, "(dry run)")
	}
	if q.Code > 0 {
		words = append(words, fmt.Sprint(q.Code))
	}
	return strings.Join(words, " ")
}

// Log is requests in the order in which they came.
type Log []Request

// Requests returns the requests of the code under test so far, those that are under way included.
func (p *Plane) Requests() Log {
	p.t.Helper()
	var all struct{ Requests Log }
	p.must(http.MethodGet, "/requests", nil, &all)
	return all.Requests
}

// By returns the requests of somebody: a user, a field manager, or a program whose User-Agent begins with the word.
func (l Log) By(who string) Log {
	return l.where(func(q *Request) bool {
		agent, _, _ := strings.Cut(q.Agent, "/")
		return q.User == who || q.Manager == who || agent == who
	})
}

// Writes returns the requests that are to change something.
func (l Log) Writes() Log {
	return l.where(func(q *Request) bool {
		switch q.Verb {
		case "create", "update", "patch", "apply", "delete", "deletecollection":
			return q.Resource != "" && !q.DryRun
		}
		return false
	})
}

// On returns the requests for a resource, such as "deployments", or for a subresource: "deployments/status".
func (l Log) On(resource string) Log {
	name, sub, both := strings.Cut(resource, "/")
	return l.where(func(q *Request) bool { return q.Resource == name && (!both || q.Subresource == sub) })
}

// Verb returns the requests with one of these verbs.
func (l Log) Verb(verbs ...string) Log {
	return l.where(func(q *Request) bool {
		for _, verb := range verbs {
			if q.Verb == verb {
				return true
			}
		}
		return false
	})
}

func (l Log) where(holds func(*Request) bool) (some Log) {
	for i := range l {
		if holds(&l[i]) {
			some = append(some, l[i])
		}
	}
	return some
}

// String prints a line for each request.
func (l Log) String() string {
	var text strings.Builder
	for i := range l {
		text.WriteString(l[i].Time.UTC().Format("2006-01-02T15:04:05.000Z ") + l[i].String() + "\n")
	}
	return text.String()
}

const (
	settleLimit = time.Minute          // how long Settle waits if its context has no deadline
	settlePause = 2 * time.Millisecond // between two looks
	settleLooks = 3                    // so many in a row have to find nothing to do
)

// Settle waits until nothing is left to do that can be seen from outside of the code under test: no request is under
// way, every watch has sent all events, its client has read them and waits for the next one, and no controller of
// Plinth has work. Code that has an event in hand, or in a queue, is not seen, and what waits for its time to come is
// not waited for.
//
// It returns an error when ctx ends, or after a minute if ctx has no deadline; the error says what was still going on.
func (p *Plane) Settle(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleLimit)
		defer cancel()
	}
	requests := -1
	for quiet := 0; quiet < settleLooks; {
		busy, seen, err := p.look(ctx)
		if quiet++; busy != "" || seen != requests {
			quiet, requests = 0, seen
		}
		if err == nil {
			err = pause(ctx, settlePause)
		}
		if err != nil {
			return fmt.Errorf("outside: the control plane does not settle: %s: %w", busy, err)
		}
	}
	return nil
}

// look says what is going on, "" if nothing is, and how many requests there were.
func (p *Plane) look(ctx context.Context) (busy string, requests int, err error) {
	var now struct {
		Busy     string
		Requests int
		Watches  map[string]int64
	}
	path := "/v1/planes/" + p.access.Plane + "/activity"
	if err := p.service.call(ctx, http.MethodGet, path, nil, &now); err != nil {
		return now.Busy, 0, err
	}
	switch n := p.watches.sending.Load(); {
	case now.Busy != "":
		return now.Busy, now.Requests, nil
	case n > 0:
		return fmt.Sprintf("%d requests are under way", n), now.Requests, nil
	case p.watches.unread(now.Watches):
		return "a client has not read the events of its watch", now.Requests, nil
	}
	return "", now.Requests, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
