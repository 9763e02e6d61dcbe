package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// workload is what clients do to objects of one kind, and what is asked of the answers.
type workload struct {
	name string
	// prepare makes what the workload needs; nil: nothing but its namespace, which has its name.
	prepare func(c *client) error
	// step sends one request, or a few that belong together.
	step func(c *client, w *workload)
	// check looks for violations beyond those of the history and the sights.
	check   func(r *run, w *workload) []string
	rules   rules
	history history
	sights  sights

	mu      sync.Mutex
	counts  [3]int // by outcome, of all requests
	last    int64  // when the last one was done
	stalled int64  // the longest time in which none was
	known   map[string]object
}

// floor is how many requests of a workload have to be done in a run. A run goes on until they are.
const floor = 30

// count notes how a request ended.
func (w *workload) count(a *answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[a.outcome]++
	if a.outcome == done {
		w.stalled, w.last = max(w.stalled, a.back-w.last), a.back
	}
}

func (w *workload) done() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[done]
}

// know notes how an object was last seen by anybody, so that clients meet at the same ones.
func (w *workload) know(key string, o object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known == nil {
		w.known = map[string]object{}
	}
	if o == nil {
		delete(w.known, key)
		return
	}
	w.known[key] = o
}

// last is an object as it was seen last, or nil. It may be older than what other clients see by now.
func (w *workload) lastOf(key string) object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[key]
}

// names are those of the objects that are known.
func (w *workload) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for name := range w.known {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// stateOf is the state of an object in a workload: its data, unless the workload has its own.
type stateOf func(o object) string

func dataOf(o object) string { return fieldsText(o.data()) }

// key is an object's in histories and sights.
func (w *workload) key(name string) string { return w.name + "/" + name }

// write records a request that writes an object. of is the object of the request for the model; state is nil if the
// answer does not have the object.
func (w *workload) write(c *client, a *answer, name string, o op, state stateOf) {
	w.count(a)
	if a.err != nil && a.outcome == refused {
		return // it was never sent
	}
	o.client, o.replica, o.call, o.back, o.outcome, o.note = c.id, a.replica, a.call, a.back, a.outcome, a.note()
	if o.key == "" {
		o.key = w.key(name)
	}
	if a.outcome == unknown {
		o.back = never
	}
	if a.status == http.StatusTooManyRequests || a.whatever {
		o.whatever = true
	}
	if a.outcome == done && state != nil {
		o.shows, o.seen = true, state(a.body)
		w.see(c, name, a, a.body, state)
	}
	w.history.add(&o)
}

// see records that an answer showed an object.
func (w *workload) see(c *client, name string, a *answer, o object, state stateOf) {
	w.know(name, o)
	c.saw(o.revision())
	w.sights.add(sight{key: w.key(name), uid: o.uid(), revision: o.revision(), state: state(o), deletion: o.deletion(),
		call: a.call, back: a.back})
}

// get reads an object, which is nil if there is none. It returns false if that is not known.
func (w *workload) get(c *client, name string, state stateOf) (object, bool) {
	a := c.send(http.MethodGet, configMaps(w.name, name), "", nil)
	w.count(a)
	o := op{client: c.id, replica: a.replica, key: w.key(name), text: "get", note: a.note(), apply: read, call: a.call,
		back: a.back, shows: true}
	switch {
	case a.status == http.StatusNotFound && a.err == nil:
		w.know(name, nil)
		w.history.add(&o)
		return nil, true
	case a.outcome != done:
		return nil, false
	}
	o.seen = state(a.body)
	w.see(c, name, a, a.body, state)
	w.history.add(&o)
	return a.body, true
}

// violations are those of the whole workload. Everything was read once more.
func (w *workload) violations(r *run) []string {
	rules := w.rules
	if r.truth != nil {
		rules.written = r.truth.written
	}
	found := linear(w.history.all(), rules, r.artifacts)
	found = append(found, checkSights(w.sights.all)...)
	if w.check != nil {
		found = append(found, w.check(r, w)...)
	}
	for i := range found {
		found[i] = w.name + ": " + found[i]
	}
	return found
}

func (w *workload) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%-11s %6d done %6d refused %5d unknown, longest stall %s", w.name, w.counts[done],
		w.counts[refused], w.counts[unknown], time.Duration(w.stalled).Round(time.Millisecond))
}

// keys are those of a history, in order.
func (w *workload) keys() []string {
	var all []string
	for _, o := range w.history.all() {
		all = append(all, o.key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readAll reads every object of the history once more.
func (w *workload) readAll(c *client, state stateOf) error {
	for _, key := range w.keys() {
		name := strings.TrimPrefix(key, w.name+"/")
		if err := c.insist(func() bool { _, ok := w.get(c, name, state); return ok }); err != nil {
			return fmt.Errorf("reading %s in the end: %w", key, err)
		}
	}
	return nil
}
