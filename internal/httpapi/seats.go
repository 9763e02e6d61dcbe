package httpapi

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/fairness"
)

// With priority and fairness a request takes seats in the place of a slot, and may wait for them (AUTH-6). Package
// fairness decides; this file tells it what the request is and what work it will be.

// longestWait is how long a request may wait for its seats at most.
const longestWait = time.Minute

// tooMany refuses a request for want of seats.
type tooMany struct{ retryAfter int } // seconds

func (e *tooMany) Error() string { return "Too many requests, please try again later." }

// send answers with the refusal, in plain text as in the reference.
func (e *tooMany) send(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(e.retryAfter))
	http.Error(w, e.Error(), http.StatusTooManyRequests)
}

var tickets = sync.Pool{New: func() any { return new(fairness.Ticket) }}

// needsSeats says whether the request is subject to priority and fairness: all are, except connections. A watch has
// seats until its initial events have been sent.
func (rs *requestState) needsSeats() bool {
	return rs.h.Fairness != nil && (rs.class != LongRunning || rs.info.verb == "watch")
}

// The headers that name the flow schema and the level of a request.
const (
	flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"
	levelHeader      = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// classify finds the flow schema and the level of the request, and names them in the header.
func (rs *requestState) classify() {
	rs.flow = rs.h.Fairness.Match(&rs.asked)
	header := rs.w.Header()
	header[flowSchemaHeader], header[levelHeader] = rs.flow.UIDs()
}

// takeSeats waits for the seats of the request, and then for a place to execute.
func (rs *requestState) takeSeats() error {
	t := tickets.Get().(*fairness.Ticket)
	t.Work = rs.work()
	began := time.Now()
	retryAfter := rs.flow.Acquire(rs.ctx, t, &rs.asked, rs.seatsBy())
	rs.queued = time.Since(began)
	if retryAfter > 0 {
		putTicket(t)
		rs.rejected = true
		return &tooMany{retryAfter}
	}
	rs.ticket = t
	if err := rs.flow.Enter(rs.ctx, t, &rs.place); err != nil {
		return err
	}
	if rs.info.verb == "watch" && rs.countsAsWatcher() {
		rs.watcher = true
		rs.h.watchers.Add(rs.watched(), 1)
	}
	return nil
}

func putTicket(t *fairness.Ticket) {
	*t = fairness.Ticket{}
	tickets.Put(t)
}

// dropSeats gives the seats back, and the place.
func (rs *requestState) dropSeats() {
	rs.place.Exit()
	if t := rs.ticket; t != nil {
		rs.ticket = nil
		t.Release(rs.info.verb == "watch")
		putTicket(t)
	}
}

// forgetWatcher ends the counting of a watch.
func (rs *requestState) forgetWatcher() {
	if rs.watcher {
		rs.watcher = false
		rs.h.watchers.Add(rs.watched(), -1)
	}
}

// bounded says whether the request holds a slot, or seats of which there is a limited number.
func (rs *requestState) bounded() bool {
	return rs.release != nil || rs.ticket != nil && !rs.flow.Exempt()
}

// seatsBy is until when the request waits: a quarter of its time.
func (rs *requestState) seatsBy() time.Time {
	wait := rs.h.RequestTimeout / 4
	if !rs.deadline.IsZero() {
		wait = rs.deadline.Sub(rs.began) / 4
	}
	return rs.began.Add(min(wait, longestWait))
}

// work estimates the work of the request.
func (rs *requestState) work() fairness.Work {
	info := &rs.info
	switch info.verb {
	case "list", "watch":
		if info.isResource {
			return rs.listWork()
		}
	case "create", "update", "patch", "delete":
		if info.isResource && !(info.resource == "serviceaccounts" && info.subresource == "token") {
			return fairness.WriteWork(rs.h.watchers.Interested(rs.watched()), rs.flow.Widest())
		}
	}
	return fairness.Work{Seats: 1}
}

// listWork estimates a list or a watch. Errors of the parameters are answered later.
func (rs *requestState) listWork() fairness.Work {
	l := fairness.List{Watch: rs.info.verb == "watch", Single: rs.info.name != ""}
	if rs.r.URL.RawQuery != "" {
		values := rs.query()
		limit, err := integer(values, "limit")
		if err != nil {
			l.Invalid = true
		} else if limit != nil {
			l.Limit = *limit
		}
		l.Revision, l.Match = first(values, "resourceVersion"), first(values, "resourceVersionMatch")
		l.Continue = first(values, "continue")
		l.SendInitial = isTrue(values, "sendInitialEvents")
		l.Selects = first(values, "fieldSelector") != "" || first(values, "labelSelector") != ""
	}
	return l.Work(rs.stats, rs.flow.Widest())
}

// stats are the figures of the objects of the request's type; nil if it is not one of this server.
func (rs *requestState) stats() *fairness.Stats {
	if rs.h.Stats == nil || rs.backend != nil {
		return nil
	}
	return rs.h.Stats(rs.info.group, rs.info.version, rs.info.resource)
}

func (rs *requestState) watched() fairness.Watched {
	info := &rs.info
	return fairness.Watched{Group: info.group, Resource: info.resource, Namespace: info.namespace, Name: info.name}
}

// countsAsWatcher says whether the watch is counted: a watch of the Pods of one node is not, since a write to a Pod
// concerns few of them.
func (rs *requestState) countsAsWatcher() bool {
	if rs.info.resource != "pods" || rs.asked.FieldSelector == "" {
		return true
	}
	selector, err := fields.ParseSelector(rs.asked.FieldSelector)
	if err != nil {
		return true
	}
	node, ok := selector.RequiresExactMatch("spec.nodeName")
	return !ok || node == ""
}
