package plinthtest

import (
	"net/http"
	"strings"
	"time"
)

// watchHeader gives a watch at the port a name, by which its client can find out whether it has read all that was sent:
// there is no other way to say so of what is on its way through sockets.
const watchHeader = "Plinth-Watch"

// caller returns who has sent a request to the port, by a token that was given out for that. The token is removed: the
// plane does not know it.
func (f *front) caller(r *http.Request) (*caller, bool) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	from, known := f.callers[token]
	if known {
		r.Header.Del("Authorization")
	}
	return from, known
}

// admitCaller lets a token stand for a caller at the port.
func (f *front) admitCaller(token string, from *caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers == nil {
		f.callers = map[string]*caller{}
	}
	f.callers[token] = from
}

// counted counts what is written to a watch with a name.
func (f *front) counted(id string, w http.ResponseWriter) http.ResponseWriter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil {
		f.sent = map[string]int64{}
	}
	f.sent[id] = 0
	return &counting{w, f, id}
}

// uncount forgets a watch that has ended.
func (f *front) uncount(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, id)
}

// activity is what a plane was doing at a moment.
type activity struct {
	Busy     string           `json:"busy"`     // what the server is doing; "": nothing
	Requests int              `json:"requests"` // how many there have been
	Watches  map[string]int64 `json:"watches"`  // the bytes that were sent to those that have a name
}

// activity looks at the plane. The cursors come first: one that waits has written all that it had, which the counts of
// bytes have then.
func (p *Plane) activity() activity {
	a := activity{Busy: p.busy(), Watches: map[string]int64{}}
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	for id, sent := range p.front.sent {
		a.Watches[id] = sent
	}
	a.Requests = p.front.requests
	return a
}

// counting counts the bytes of a watch.
type counting struct {
	http.ResponseWriter
	front *front
	id    string
}

// Write implements http.ResponseWriter. The bytes count before they are sent: who has read as many as were sent has
// read all.
func (c *counting) Write(b []byte) (int, error) {
	c.front.mu.Lock()
	c.front.sent[c.id] += int64(len(b))
	c.front.mu.Unlock()
	return c.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (c *counting) Flush() {
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets an http.ResponseController reach the connection.
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// effectOf is an effect in the words of the control interface.
type effectOf struct {
	Type    string  `json:"type"`    // the name of the effect, such as Conflict
	Code    int     `json:"code"`    // of Status
	Reason  string  `json:"reason"`  // of Status
	Message string  `json:"message"` // of Status
	Seconds float64 `json:"seconds"` // of Latency
	After   int     `json:"after"`   // of DropWatch: so many events are sent first
}

// effect returns the effect; false: there is none of this type.
func (e *effectOf) effect() (Effect, bool) {
	switch e.Type {
	case "Status":
		return Status(e.Code, e.Reason, e.Message), e.Code >= 400 && e.Code < 600
	case "Latency":
		return Latency(time.Duration(e.Seconds * float64(time.Second))), true
	case "DropWatch":
		return DropWatchAfter(e.After), e.After >= 0
	}
	effect, ok := map[string]Effect{"Conflict": Conflict, "TooManyRequests": TooManyRequests, "Expire410": Expire410,
		"CommitThenTimeout": CommitThenTimeout, "StaleReads": StaleReads}[e.Type]
	return effect, ok
}
