package httpapi

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/audit"
	"plinth/internal/engine"
)

// exchange is one request and its answer. It is the ResponseWriter of handlers that are not this package's.
type exchange struct {
	h   *Handler
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context // the request's, with its deadline

	began    time.Time
	deadline time.Time // zero for long-running requests
	limit    *limited  // what ctx is then
	auditID  string
	target   target
	class    Class
	user     access.User
	asked    access.Attributes // what authorization was asked
	counted  bool              // in Metrics.InFlight
	exempt   bool              // takes no slot
	admitted bool              // holds one of Handler.slots
	bodyRead bool              // there is nothing more to be read of the body
	rejected bool
	dryRun   bool

	resource    *engine.Resource // what the target is about, from route on
	subresource *engine.Subresource

	noted    map[string]string // what authentication adds to the record
	record   *audit.Record     // nil: the request is not written down
	received *engine.Received  // what the record is to have of the body, see recordBody

	warnings []string // what Warning headers tell, see warn

	values url.Values // the parsed query, see query
	parsed bool

	code  int   // of the answer; 0 as long as there is none
	bytes int64 // of its body
}

// query is the parsed query. As in the reference, parts of it that cannot be parsed are passed over.
func (x *exchange) query() url.Values {
	if !x.parsed {
		x.parsed = true
		if x.r.URL.RawQuery != "" {
			x.values = x.r.URL.Query()
		}
	}
	return x.values
}

// first is the first value of a parameter, or "".
func first(values url.Values, name string) string {
	if list := values[name]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// isTrue reads a parameter as the reference reads a bool: everything is true but "0", "false" and none at all.
func isTrue(values url.Values, name string) bool {
	list := values[name]
	return len(list) > 0 && list[0] != "0" && !strings.EqualFold(list[0], "false")
}

// Header, WriteHeader and Write make an exchange a ResponseWriter that keeps the figures of the answer.
func (x *exchange) Header() http.Header { return x.w.Header() }

// WriteHeader sends the status.
func (x *exchange) WriteHeader(code int) {
	if x.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		x.code = code
		x.record.Answers(code)
	}
	x.w.WriteHeader(code)
}

// Write sends a part of the body.
func (x *exchange) Write(b []byte) (int, error) {
	if x.code == 0 {
		x.WriteHeader(http.StatusOK)
	}
	n, err := x.w.Write(b)
	x.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection: to flush, to set deadlines, and to hijack it.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// Flush sends what has been written.
func (x *exchange) Flush() {
	if f, ok := x.w.(http.Flusher); ok {
		f.Flush()
	}
}

// observation is what metrics are told of the exchange.
func (x *exchange) observation() Observation {
	t := &x.target
	o := Observation{
		Verb: x.reportedVerb(), DryRun: x.dryRun, Code: x.code, Class: x.class, Scope: t.scope(),
		Took: time.Since(x.began), Bytes: x.bytes, Rejected: x.rejected,
	}
	if x.resource != nil { // names that are not served would let clients make up labels
		o.Group, o.Version, o.Resource = t.group, t.version, t.resource
		o.Custom = x.resource.Stored != nil && x.resource.Stored.Custom
		if x.subresource != nil {
			o.Subresource = t.subresource
		}
	}
	return o
}

// reportedVerb is the verb as the reference's metrics have it. There is one for all methods that are no verbs: a client may
// send any.
func (x *exchange) reportedVerb() string {
	t := &x.target
	switch {
	case t.isResource && connects(t.subresource):
		return "CONNECT"
	case t.verb == "watch":
		return "WATCH"
	case x.r.Method == http.MethodPatch:
		if format, ok, _ := x.h.offer.ReadsPatch(mediaName(x.r.Header.Get("Content-Type"))); ok && format.Type == engine.ApplyPatch {
			return "APPLY"
		}
		return http.MethodPatch
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead:
		if scope := t.scope(); scope == "cluster" || scope == "namespace" {
			return "LIST"
		}
		return http.MethodGet
	case http.MethodPost, http.MethodPut, http.MethodDelete:
		return x.r.Method
	}
	return "other"
}

// newAuditID makes a random UUID.
func newAuditID() string {
	var raw [16]byte
	for i, word := range [...]uint64{rand.Uint64(), rand.Uint64()} {
		for b := range 8 {
			raw[8*i+b] = byte(word >> (8 * b))
		}
	}
	raw[6] = raw[6]&0x0f | 0x40
	raw[8] = raw[8]&0x3f | 0x80
	text := make([]byte, 36)
	for i, at := range [...]int{0, 9, 14, 19, 24} {
		from := [...]int{0, 4, 6, 8, 10, 16}
		hex.Encode(text[at:], raw[from[i]:from[i+1]])
	}
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}
