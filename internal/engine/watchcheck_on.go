//go:build invariants || race

package engine

import "plinth/internal/store"

// watchCheck follows the events that a watch returns, as a client that keeps the objects of its events does:
//
//	after the initial events revisions rise from event to event; equal only where other processes write, whose
//	transactions may have one revision, and then not for one name
//	no bookmark is older than an event before it
//	held[name] = the client has the object of this name, where that is known
//	ADDED ⇒ ¬held[name]    MODIFIED, DELETED ⇒ held[name] or nothing is known
//	owed ⇔ Next has begun and has not returned events, so records may have left the cursor without being sent
//	¬owed when a bookmark is made, and when Next begins (WATCH-8)
type watchCheck struct {
	held   map[string]bool
	last   int64
	ofLast map[string]bool // the names of the events of revision last
	others bool            // other processes write to the store
	owed   bool
}

// starts is called with the store of the watch.
func (c *watchCheck) starts(s *store.Store) { c.others = s.Others != nil }

// begins is called when Next begins.
func (c *watchCheck) begins() {
	assert(!c.owed, "a watch goes on after an error: the events behind revision %d were not sent", c.last)
	c.owed = true
}

// returns is called when Next returns its events.
func (c *watchCheck) returns() { c.owed = false }

// event is called for every event, in order, before it is presented.
func (c *watchCheck) event(w *Watch, t EventType, v *store.Version, revision int64) {
	name := v.Key.Name
	if w.initial == nil {
		again := revision == c.last && c.others && !c.ofLast[name]
		assert(revision > w.start && (revision > c.last || again),
			"a watch from %d emits revision %d of %s behind %d", w.start, revision, name, c.last)
		if !again {
			c.ofLast = map[string]bool{}
		}
		c.ofLast[name], c.last = true, revision
	}
	assert(v.Revision <= revision, "%s of revision %d is emitted at %d", v.Key, v.Revision, revision)
	if c.held == nil {
		c.held = map[string]bool{}
	}
	before, known := c.held[name]
	// A webhook that is asked twice about a version may answer differently.
	parses := w.sel.relabels || w.sel.asked != nil && w.sel.asked.Served.selection != w.sel.asked.Stored.Storage.selection
	if known && v.Sidecar.Unreadable == nil && !parses {
		assert(before == (t != Added), "the event of %s is %s, the client has it: %v", v.Key, t, before)
	}
	c.held[name] = t != Deleted
}

// bookmark is called for every revision that a bookmark may carry.
func (c *watchCheck) bookmark(revision int64) {
	assert(!c.owed, "a bookmark of revision %d passes events that were not sent", revision)
	assert(revision >= c.last, "a bookmark has revision %d, an event before it %d", revision, c.last)
}
