//go:build invariants || race

package engine

import (
	"context"

	"plinth/internal/store"
)

// watchCheck follows the events that a watch returns, as a client that keeps the objects of its events does:
//
//	revisions rise from event to event after the initial ones; no bookmark is older than an event before it
//	held[name] = the client has the object of this name, where that is known
//	ADDED ⇒ ¬held[name]    MODIFIED, DELETED ⇒ held[name] or nothing is known
type watchCheck struct {
	held map[string]bool
	last int64
}

// event is called for every event, in order, before it is presented.
func (c *watchCheck) event(ctx context.Context, w *Watch, t EventType, v *store.Version, revision int64) {
	name := v.Key.Name
	if w.initial == nil {
		assert(revision > w.start && revision > c.last,
			"a watch from %d emits revision %d behind %d", w.start, revision, c.last)
		c.last = revision
	}
	assert(v.Revision <= revision, "%s of revision %d is emitted at %d", v.Key, v.Revision, revision)
	if c.held == nil {
		c.held = map[string]bool{}
	}
	was, known := c.held[name]
	// A selection that parses an object may fail, or be cancelled, and then selects what it cannot decide about.
	parses := w.sel.asked != nil && w.sel.asked.Served != w.sel.asked.Stored.Storage
	if known && ctx.Err() == nil && v.Sidecar.Unreadable == nil && !parses {
		assert(was == (t != Added), "the event of %s is %s, the client has it: %v", v.Key, t, was)
	}
	c.held[name] = t != Deleted
}

// bookmark is called for every revision that a bookmark may carry.
func (c *watchCheck) bookmark(revision int64) {
	assert(revision >= c.last, "a bookmark has revision %d, an event before it %d", revision, c.last)
}
