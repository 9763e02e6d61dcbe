package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/engine"
	"plinth/internal/execution"
	"plinth/internal/fairness"
	"plinth/internal/webhook"
)

// requestState is one request and its answer. It is also the ResponseWriter that handlers of other packages get. Only
// one goroutine uses it; other goroutines (timers, the closing server) act on it through guard, bodyTimer and watching,
// which have locks.
//
//	code ≠ 0  ⇔  the header of the answer was sent, so an error can no longer become the answer
//	release ≠ nil  ⇔  the request holds a slot, which end gives back
//	ticket ≠ nil   ⇔  the request holds seats, which end gives back
type requestState struct {
	h   *Handler
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context // the request's, with its deadline

	began    time.Time
	deadline time.Time // zero for long-running requests
	limit    *limited  // ctx with this deadline; nil for long-running requests
	auditID  string
	info     requestInfo
	class    Class
	backend  Backend // who answers; nil: the engine
	user     access.User
	actor    string            // the name of who has authenticated, if that is not user
	asked    access.Attributes // the attributes that are authorized, see ask
	queued   time.Duration     // how long it waited for seats
	release  func()            // gives the slot back; nil: the request holds none
	flow     fairness.Class    // with priority and fairness
	ticket   *fairness.Ticket  // its seats; nil: the request holds none
	place    execution.Place   // to execute
	held     int64             // bytes of its body that are counted in Handler.bodies

	// The flags stand together: a request that watches is kept for long, and its size counts.
	drained  bool // counted in Config.Draining
	counted  bool // in Metrics.InFlight
	routed   bool // in Metrics.LongRunning
	watcher  bool // counted in Handler.watchers
	bodyRead bool // the body has been read to its end, or reading it has failed
	rejected bool
	dryRun   bool
	parsed   bool // values are the parsed query

	resource    *engine.Resource // the type of the URL; nil until route has found it
	subresource *engine.Subresource

	noted    map[string]string // annotations that authentication adds to the record
	calls    *webhook.Notes    // annotations that calls of other servers add to it; nil: nobody records
	record   *audit.Record     // nil: the request is not recorded
	received *engine.Received  // the part of the body that the record needs, see recordBody

	warnings []string // the texts of the Warning headers, see warn

	values url.Values // the parsed query, see query

	stall *guard // of a forwarded answer, armed while it is written; nil: those who write have their own
	code  int    // of the answer; 0 until its header is sent
	bytes int64  // of its body
}

// query is the parsed query. As in the reference, parts of it that cannot be parsed are ignored.
func (rs *requestState) query() url.Values {
	if !rs.parsed {
		rs.parsed = true
		if rs.r.URL.RawQuery != "" {
			rs.values = rs.r.URL.Query()
		}
	}
	return rs.values
}

// first is the first value of a parameter, or "".
func first(values url.Values, name string) string {
	if list := values[name]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// isTrue parses a parameter as the reference parses a bool: false if it is "0", "false" or absent, and otherwise true.
func isTrue(values url.Values, name string) bool {
	list := values[name]
	return len(list) > 0 && list[0] != "0" && !strings.EqualFold(list[0], "false")
}

// Header, WriteHeader and Write make a requestState a ResponseWriter that records the status and size of the answer.
func (rs *requestState) Header() http.Header { return rs.w.Header() }

// WriteHeader sends the status. The informational ones (1xx) are not the status of the answer.
func (rs *requestState) WriteHeader(code int) {
	if rs.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		rs.code = code
		execution.Outside(rs.ctx, func() { rs.recordAnswer(code) })
	}
	rs.w.WriteHeader(code)
}

// Write sends a part of the body. net/http may wait for the client, unless it has room for all of it.
func (rs *requestState) Write(b []byte) (int, error) {
	if rs.code == 0 {
		rs.WriteHeader(http.StatusOK)
	}
	if rs.stall != nil {
		rs.stall.arm(len(b))
		defer rs.stall.disarm()
	}
	sends := rs.bytes+int64(len(b)) > buffered && rs.place.BeginSend()
	n, err := rs.w.Write(b)
	rs.bytes += int64(n)
	if sends {
		err = cmp.Or(err, rs.place.EndSend(rs.ctx))
	}
	return n, err
}

// Unwrap lets http.ResponseController reach the connection, to set deadlines.
func (rs *requestState) Unwrap() http.ResponseWriter { return rs.w }

// Flush sends what has been written.
func (rs *requestState) Flush() {
	if rs.stall != nil {
		rs.stall.arm(0)
		defer rs.stall.disarm()
	}
	if f, ok := rs.w.(http.Flusher); ok {
		execution.Sending(rs.ctx, f.Flush)
	}
}

// Hijack gives the connection to the caller. As in the reference, the request then counts as answered with 101. It no
// longer holds a slot, because a connection may last as long as its client wants.
func (rs *requestState) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffered, err := http.NewResponseController(rs.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	rs.code = http.StatusSwitchingProtocols
	rs.recordAnswer(rs.code)
	rs.dropSlot()
	if rs.backend != nil {
		connection = newUpgraded(connection, rs.h.Closing)
	}
	return connection, buffered, nil
}

// observation collects the figures of the request for metrics.
func (rs *requestState) observation() Observation {
	info := &rs.info
	o := Observation{
		Verb: rs.reportedVerb(), DryRun: rs.dryRun, Code: rs.code, Class: rs.class, Scope: info.scope(),
		Took: time.Since(rs.began), Bytes: rs.bytes, Rejected: rs.rejected, Waited: rs.queued,
	}
	if rs.limit != nil {
		o.Waited += rs.limit.hooks.Total()
	}
	// Only names that are served become labels of metrics: clients can send any number of other names.
	if rs.resource != nil {
		o.Group, o.Version, o.Resource = info.group, info.version, info.resource
		o.Deprecated = rs.resource.Deprecated
		o.Custom = rs.resource.Stored != nil && rs.resource.Stored.Custom
		if rs.subresource != nil {
			o.Subresource = info.subresource
		}
	}
	return o
}

// reportedVerb is the verb as the reference's metrics have it. All methods without a verb share one name: clients can
// send any.
func (rs *requestState) reportedVerb() string {
	info := &rs.info
	switch {
	case info.isResource && connects(info.subresource):
		return "CONNECT"
	case info.verb == "watch":
		return "WATCH"
	case rs.r.Method == http.MethodPatch:
		if format, ok, _ := rs.h.offer.ReadsPatch(mediaName(rs.r.Header.Get("Content-Type"))); ok &&
			format.Type == engine.ApplyPatch {
			return "APPLY"
		}
		return http.MethodPatch
	}
	switch rs.r.Method {
	case http.MethodGet, http.MethodHead:
		if scope := info.scope(); scope == "cluster" || scope == "namespace" {
			return "LIST"
		}
		return http.MethodGet
	case http.MethodPost, http.MethodPut, http.MethodDelete:
		return rs.r.Method
	}
	return "other"
}
