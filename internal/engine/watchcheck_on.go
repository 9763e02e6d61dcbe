//go:build invariants || race

package engine

import "plinth/internal/store"

// watchCheck follows the events that a watch returns, as a client that keeps the objects of its events does:
//
//	revisions rise from event to event after the initial ones; no bookmark is older than an event before it
//	held[name] = the client has the object of this name, where that is known
//	ADDED ⇒ ¬held[name]    MODIFIED, DELETED ⇒ held[name] or nothing is known
//	owed ⇔ Next has begun and has not returned events, so records may have left the cursor without being sent
//	¬owed when a bookmark is made, and when Next begins (WATCH-8)
type watchCheck struct {
	held map[string]bool
	last int64
	owed bool
}

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
		assert(revision > w.start && revision >= c.last,
			"a watch from %d emits revision %d behind %d", w.start, revision, c.last)
		c.last = revision
	}
	assert(v.Revision <= revision, "%s of revision %d is emitted at %d", v.Key, v.Revision, revision)
	if c.held == nil {
		c.held = map[string]bool{}
	}
	was, known := c.held[name]
	// A webhook that is asked twice about a version may answer differently.
	parses := w.sel.asked != nil && w.sel.asked.Served.selection != w.sel.asked.Stored.Storage.selection
	if known && v.Sidecar.Unreadable == nil && !parses {
		assert(was == (t != Added), "the event of %s is %s, the client has it: %v", v.Key, t, was)
	}
	c.held[name] = t != Deleted
}

// bookmark is called for every revision that a bookmark may carry. It may be the one before that of the last event, if
// more events of that revision follow.
func (c *watchCheck) bookmark(revision int64) {
	assert(!c.owed, "a bookmark of revision %d passes events that were not sent", revision)
	assert(revision >= c.last-1, "a bookmark has revision %d, an event before it %d", revision, c.last)
}
