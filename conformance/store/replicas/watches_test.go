package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// segment is what one watcher has seen without listing again: it began with a list, and went on from replica to
// replica, each time at the last revision that it had.
type segment struct {
	namespace string
	selects   bool
	known     int64 // a revision that somebody had seen before it was asked for
	start     int64
	initial   map[string]change
	events    []change
	marks     []bookmark
	moves     int   // how often it went on at another replica
	end       int64 // up to which it says that it has seen everything
}

// bookmark says that the watch has sent all events up to a revision. behind is how many it had sent.
type bookmark struct {
	revision int64
	behind   int
}

// watcher follows the ConfigMaps of a namespace.
type watcher struct {
	*run
	namespace string
	rand      *rand.Rand
	// steady says that it never lists again of its own accord: it misses nothing, so what such watches have seen is the
	// truth of a server without an etcd.
	steady bool
	// selects says that it asks for the objects of one side only, of which it has to see those that change sides come and
	// go.
	selects bool

	mu       sync.Mutex
	segments []*segment
	expired  int // how often it had to list again
}

// path is what it asks for.
func (w *watcher) path(parameters ...string) string {
	if w.selects {
		parameters = append(parameters, "labelSelector", "side="+watchedSide)
	}
	return query(configMaps(w.namespace), parameters...)
}

// watchedSide is the label of the objects that some watches select.
const watchedSide = "even"

// watchedNamespaces are those that watchers follow.
var watchedNamespaces = []string{"registers", "names", "lists", "revisions"}

// position is the revision of the last segment, or 0.
func (w *watcher) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.segments) == 0 {
		return 0
	}
	return w.segments[len(w.segments)-1].end
}

// begun waits until the watcher has listed once, or there is nothing to list.
func (w *watcher) begun(t *testing.T) {
	t.Helper()
	eventually(t, "a watch begins", func() error {
		if w.position() == 0 {
			return errors.New("it has listed nothing yet")
		}
		return nil
	})
}

// follow watches until the context ends, or until it has seen everything up to a revision.
func (w *watcher) follow(ctx context.Context, upTo func() int64) {
	var s *segment
	w.mu.Lock()
	if n := len(w.segments); n > 0 {
		s = w.segments[n-1]
	}
	w.mu.Unlock()
	for ctx.Err() == nil {
		if until := upTo(); until > 0 && s != nil && s.end >= until {
			return
		}
		replica := w.rand.Intn(len(w.replicas))
		if s == nil {
			begin := w.list
			if w.rand.Intn(2) == 0 {
				begin = w.initialEvents
			}
			if s = begin(ctx, replica); s == nil {
				pause(ctx, 50*time.Millisecond)
				continue
			}
			w.mu.Lock()
			w.segments = append(w.segments, s)
			w.mu.Unlock()
			continue
		}
		if !w.watch(ctx, replica, s, upTo) {
			w.mu.Lock()
			w.expired++
			w.mu.Unlock()
			s = nil
		} else if !w.steady && w.rand.Intn(20) == 0 && upTo() == 0 {
			s = nil // as if the client had been started again
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// list begins a segment. It returns nil if there was no answer.
func (w *watcher) list(ctx context.Context, replica int) *segment {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	known := w.newest.Load()
	response, err := w.open(ctx, replica, http.MethodGet, w.path(), "", nil)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var list object
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&list) != nil {
		return nil
	}
	s := &segment{namespace: w.namespace, selects: w.selects, known: known, start: list.revision(),
		initial: map[string]change{}, end: list.revision()}
	for _, i := range list.items() {
		s.initial[i.name()] = changeOf("ADDED", i)
	}
	return s
}

// initialEvents begins a segment with a watch that sends all objects first, and says when it has.
func (w *watcher) initialEvents(ctx context.Context, replica int) *segment {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &segment{namespace: w.namespace, selects: w.selects, known: w.newest.Load(), initial: map[string]change{}}
	response, err := w.open(ctx, replica, http.MethodGet, w.path("watch", "1", "allowWatchBookmarks", "true",
		"sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan"), "", nil)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	for lines := json.NewDecoder(response.Body); ; {
		var e event
		if lines.Decode(&e) != nil || e.Type == "ERROR" {
			return nil
		}
		if e.Type == "BOOKMARK" {
			s.start, s.end = e.Object.revision(), e.Object.revision()
			return s
		}
		s.initial[e.Object.name()] = changeOf(e.Type, e.Object)
	}
}

// event is one of a watch.
type event struct {
	Type   string
	Object object
}

func changeOf(kind string, o object) change {
	return change{revision: o.revision(), kind: kind, namespace: o.text("metadata", "namespace"), name: o.name(),
		uid: o.uid(), state: dataOf(o)}
}

// watch goes on with a segment at a replica, for a few seconds at most. It returns false if the server says that the
// segment cannot be continued.
func (w *watcher) watch(ctx context.Context, replica int, s *segment, upTo func() int64) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(500+w.rand.Intn(4000))*time.Millisecond)
	defer cancel()
	path := w.path("watch", "1", "allowWatchBookmarks", "true", "timeoutSeconds",
		strconv.Itoa(1+w.rand.Intn(4)), "resourceVersion", fmt.Sprint(s.end))
	response, err := w.open(ctx, replica, http.MethodGet, path, "", nil)
	if err != nil {
		return true
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode != http.StatusGone
	}
	s.moves++
	for lines := json.NewDecoder(response.Body); ; {
		var e event
		if lines.Decode(&e) != nil {
			return true
		}
		switch e.Type {
		case "ERROR":
			code, _ := e.Object["code"].(float64)
			return int(code) != http.StatusGone
		case "BOOKMARK":
			w.mu.Lock()
			s.marks = append(s.marks, bookmark{e.Object.revision(), len(s.events)})
			s.end = e.Object.revision()
			w.mu.Unlock()
		default:
			w.mu.Lock()
			s.events = append(s.events, changeOf(e.Type, e.Object))
			s.end = e.Object.revision()
			w.mu.Unlock()
		}
		if until := upTo(); until > 0 && s.end >= until {
			return true
		}
	}
}

// checkSegment checks what a watcher has seen against the truth: it began with the objects of one moment, has had each
// change since exactly once and in order, and all of them up to each bookmark.
func checkSegment(s *segment, changes []change) (violations []string) {
	said := func(format string, arguments ...any) {
		violations = append(violations, fmt.Sprintf("a watch of %s from revision %d, which moved %d times: %s", s.namespace,
			s.start, s.moves, fmt.Sprintf(format, arguments...)))
	}
	if s.start < s.known {
		said("a client had revision %d before", s.known)
	}
	if s.selects {
		changes = ofSide(changes)
	}
	want := snapshot(changes, s.start)
	for name, c := range want {
		if got, ok := s.initial[name]; !ok || got.revision != c.revision || got.uid != c.uid || got.state != c.state {
			said("the list before it has %s, and %s was there", got, c)
		}
	}
	for name, c := range s.initial {
		if _, ok := want[name]; !ok {
			said("the list before it has %s, which was not there", c)
		}
	}
	var due []change
	for _, c := range changes {
		if c.revision > s.start && c.revision <= s.end {
			due = append(due, c)
		}
	}
	for i := range max(len(due), len(s.events)) {
		if i < len(due) && i < len(s.events) && due[i] == s.events[i] {
			continue
		}
		around := func(of []change) string {
			var lines strings.Builder
			for j := max(0, i-2); j < min(len(of), i+4); j++ {
				fmt.Fprintf(&lines, "\n    %s", of[j])
			}
			return lines.String()
		}
		said("it differs at event %d of %d, up to revision %d\n  the changes are%s\n  it has seen%s", i, len(due), s.end,
			around(due), around(s.events))
		break
	}
	for _, m := range s.marks {
		n := sort.Search(len(due), func(i int) bool { return due[i].revision > m.revision })
		if n != m.behind {
			said("there are %d changes up to the bookmark of revision %d, and it was sent behind %d", n, m.revision, m.behind)
			break
		}
	}
	return violations
}

// ofSide are changes as a watch has them that selects one side: an object that changes to it is added, and one that
// changes to the other is deleted, as it was before and with the revision of the change.
func ofSide(changes []change) (selected []change) {
	there := map[string]change{}
	for _, c := range changes {
		before, was := there[c.name]
		is := c.kind != "DELETED" && sideOf(c.state) == watchedSide
		if delete(there, c.name); is {
			there[c.name] = c
		}
		switch {
		case was && !is:
			c.kind, c.uid, c.state = "DELETED", before.uid, before.state
		case is && !was:
			c.kind = "ADDED"
		case !is:
			continue
		}
		selected = append(selected, c)
	}
	return selected
}
