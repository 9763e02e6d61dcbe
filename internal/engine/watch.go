package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
)

// initialBatch is how many initial events are made at a time.
const initialBatch = 512

// restingEvents is the capacity for events that a waiting watch keeps: there may be thousands of waiting watches.
const restingEvents = 64

// Watch is a running watch: first the initial events, if the client requested them, then the events from the history
// after them. A client that applies the events to its objects must have the same selection as the server:
//
//	∀ r ≥ start: (selection at start) + (events of revisions in (start, r]) = selection at r
//	the revisions of events rise, initial events aside
//	a bookmark of revision r is sent ⇒ every event of a revision ≤ r was sent before (WATCH-8)
//
// The cursor has passed a record before its event exists: whether the record is selected, and the object in the version
// that the client has requested, may take a conversion webhook. So what ends the wait for records, which a watch does
// whenever a bookmark is due, must not end the conversion. NextUntil takes two contexts, and that of the wait applies
// only while nothing has been taken from the cursor. If the conversion fails, there is no position from which the watch
// could go on, so it is over.
//
// The reference has a queue for each watcher, filled by one goroutine that runs every new version through all
// selectors. That costs work for every watcher at every write, memory for every slow watcher, and it must drop a
// watcher whose queue is full, although nothing has failed. Here a record of the history has both the old and the new
// version of an object, all watchers read the same records, and a watch is a position (cursor). A slow watch is an
// older position; it fails only when the history no longer reaches back to it.
//
// A selection turns one record into different events (add): it depends on whether the old and the new version are
// selected.
//
//	            new selected   new not selected
//	old selected     MODIFIED       DELETED
//	old not          ADDED          –
//
// The store compares the terms of a selector with an index and wakes only watches that a record may concern
// (selection.term), so cursor skips the other records without reading them. Its revision still rises: a bookmark
// reports it, and a client that reconnects with it continues after records that the history may have dropped by then.
//
// One goroutine uses a Watch; Close may be called by another one.
type Watch struct {
	rq       *Request
	sel      selection
	prefix   string
	initial  *store.Snapshot // the state of which initial events are still to be sent; nil: none are left
	from     string          // the name at which the initial events go on
	announce bool            // a bookmark is sent behind the initial events
	marks    bool            // the client takes bookmarks
	behind   bool            // the last event shows a resourceVersion before its revision
	cursor   *store.Cursor
	start    int64 // the revision that the watch began after
	check    watchCheck
	events   []Event
	made     int // bytes of the objects of events that were made for this watch alone
	// forget ends what Ready has begun: to be told of the end of the kind's life. Nil: nothing.
	forget func() bool
}

// Watch starts a watch (WATCH-2, WATCH-5). The start depends on the options:
//
//	resourceVersion   sendInitialEvents   initial events of          then the changes after
//	n > 0             – or false          none                       n
//	none, 0           –                   the newest snapshot        that snapshot
//	any               true                a snapshot not older       that snapshot
//	none, 0           false               none                       the newest revision
//
// An empty resourceVersion means the newest state, so the store waits until it has that; 0 means the state at hand. The
// snapshot and the cursor need no common lock: the cursor starts at the revision of the snapshot, and the history has
// everything after it.
//
// A watch from before the life of the kind is refused with 410: the events from then have another form.
func (e *Engine) Watch(ctx context.Context, rq *Request, o WatchOptions) (*Watch, error) {
	e = e.of(rq.Resource)
	sel, err := rq.selects(o.ListOptions)
	if err != nil {
		return nil, err
	}
	revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &Watch{rq: rq, sel: sel, prefix: rq.reach(&sel), start: revision, marks: o.Bookmarks}
	if invariants.Enabled {
		w.check.starts(e.store)
	}
	streaming := o.SendInitialEvents != nil && *o.SendInitialEvents
	if streaming {
		if err := e.waitFor(ctx, revision, o.ResourceVersion); err != nil {
			return nil, err
		}
		// The bookmark that ends the initial events is sent to clients that take bookmarks.
		w.announce = o.Bookmarks
	}
	if streaming || revision == 0 {
		if o.ResourceVersion == "" {
			if err := e.fresh(ctx); err != nil {
				return nil, err
			}
		}
		snapshot, err := e.store.Snapshot(0)
		if err != nil {
			return nil, err
		}
		w.start = snapshot.Revision()
		if o.SendInitialEvents == nil || streaming {
			w.initial = snapshot
		}
	}
	// A watch that was closed by the end of the life reconnects with its last revision, and has to list again.
	if life := rq.Resource.Stored.Life; life != nil && w.start < life.Since {
		return nil, tooOld(w.start, e.store.Revision())
	}
	w.cursor, err = e.store.WatchTerm(ctx, rq.Resource.Stored.Path, w.prefix, sel.term(), w.start)
	if errors.Is(err, store.ErrCompacted) {
		return nil, tooOld(w.start, e.store.Revision())
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// tooOld is 410: the history does not reach back to the revision.
func tooOld(revision, have int64) error {
	return apierr.NewExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, have))
}

// Next waits for events and returns them in the order of revisions. The slice is valid until the next call.
//
// An error ends the watch: it is that of ctx or of a conversion, ErrOver, or an API error with reason Expired if the
// history no longer reaches back to the watch.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	return w.NextUntil(ctx, ctx)
}

// NextUntil is Next that also returns, without events and without an error, when wait ends, and the watch goes on: wait
// is a context that ends with ctx or earlier.
func (w *Watch) NextUntil(ctx, wait context.Context) ([]Event, error) {
	w.rest()
	if invariants.Enabled {
		w.check.begins()
	}
	var err error
	if w.initial != nil {
		err = w.nextInitial(ctx, wait)
	} else {
		err = w.nextChanges(ctx, wait)
	}
	if err == nil && len(w.events) == 0 { // without this, a caller's loop would go on when wait has ended with ctx
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if invariants.Enabled {
		w.check.returns()
	}
	return w.events, nil
}

// Ready is Next for a reader that has no goroutine while it waits: if there are no events, it returns none, and wake is
// called as soon as there may be some, or the watch is over. wake must not wait, may be called with locks held, and has
// to be harmless when it is called late. ctx is that of the call.
func (w *Watch) Ready(ctx context.Context, wake func()) ([]Event, error) {
	w.rest()
	w.unregister()
	if invariants.Enabled {
		w.check.begins()
	}
	for w.initial != nil && len(w.events) == 0 && ctx.Err() == nil {
		if err := w.nextInitial(ctx, ctx); err != nil {
			return nil, err
		}
	}
	if len(w.events) == 0 {
		if err := w.readyChanges(ctx, wake); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if invariants.Enabled {
		w.check.returns()
	}
	return w.events, nil
}

// readyChanges turns the records that are there into events, until there is an event, or no record.
func (w *Watch) readyChanges(ctx context.Context, wake func()) error {
	life := w.rq.Resource.Stored.Life
	for len(w.events) == 0 {
		if life != nil && life.Err() != nil {
			return ErrOver
		}
		records, err := w.cursor.Ready(ctx, wake)
		if errors.Is(err, store.ErrCompacted) {
			return tooOld(w.cursor.Revision(), w.cursor.Revision())
		}
		if err != nil {
			return err
		}
		if len(records) == 0 {
			if life != nil {
				w.forget = context.AfterFunc(life, wake)
			}
			return nil
		}
		if err := w.addAll(ctx, records); err != nil {
			return err
		}
	}
	return w.present(ctx)
}

// unregister ends what Ready has begun.
func (w *Watch) unregister() {
	if w.forget != nil {
		w.forget()
		w.forget = nil
	}
}

// nextChanges waits for records and turns them into events, until there is an event or wait has ended.
func (w *Watch) nextChanges(ctx, wait context.Context) error {
	// The cursor checks its context only when it finds no records, and the records may not be selected.
	for len(w.events) == 0 && !w.owesBookmark() && wait.Err() == nil {
		records, err := w.wait(wait)
		if err != nil {
			return err
		}
		if err := w.addAll(ctx, records); err != nil {
			return err
		}
	}
	if err := w.present(ctx); err != nil {
		return err
	}
	if w.owesBookmark() {
		w.behind = false
		w.events = append(w.events, Event{Type: Bookmark, Revision: max(w.start, w.cursor.Revision())})
	}
	return nil
}

// owesBookmark says whether a bookmark is due at once. In a store of all planes (store.Across) the objects with which a
// plane begins show resourceVersions of long ago: a client that resumed from there would get again what has happened
// since, or be told to list again. The bookmark behind them has the place from which it goes on.
func (w *Watch) owesBookmark() bool { return w.marks && w.behind && !w.cursor.Within() }

// wait waits for records until ctx ends, or until the life of the kind ends, with which the watch ends.
func (w *Watch) wait(ctx context.Context) ([]*store.Record, error) {
	life := w.rq.Resource.Stored.Life
	both, stop := life.within(ctx)
	defer stop()
	records, err := w.cursor.Next(both)
	switch {
	case err == nil:
		return records, nil
	case errors.Is(err, store.ErrCompacted):
		return nil, tooOld(w.cursor.Revision(), w.cursor.Revision())
	case ctx.Err() != nil:
		return nil, nil
	case life != nil && life.Err() != nil:
		return nil, ErrOver
	}
	return nil, err
}

// ErrOver ends a watch without a failure: the kind is no longer served in the form that the watch has sent. The client
// reconnects and is served in the new form.
var ErrOver = errors.New("engine: the kind that is watched is no longer served as it was")

// rest drops the last events, so that a waiting watch keeps no version in memory, and also gives up the capacity of a
// batch of initial events.
func (w *Watch) rest() {
	clear(w.events)
	w.made = 0
	if w.events = w.events[:0]; w.initial == nil && cap(w.events) > restingEvents {
		w.events = nil
	}
}

// nextInitial makes the next batch of initial events. It may be empty if wait ends, or if no object in this part is
// selected. The batch is bounded in events and in bytes to convert, so that a watch of a large collection sends its
// first events at once and needs memory for one batch only.
func (w *Watch) nextInitial(ctx, wait context.Context) error {
	more, steps, converted := false, 0, 0
	var undecided error
	ahead := w.rq.lookAhead(&w.sel, w.initial, w.prefix)
	path := w.rq.Resource.Stored.Path
	if cap(w.events) == 0 && w.sel.all() {
		if n := w.initial.Count(path, w.prefix); n > 0 {
			w.events = make([]Event, 0, min(n, initialBatch)+1) // with the bookmark behind them
		}
	}
	w.initial.Ascend(path, w.prefix, w.from, func(v *store.Version) bool {
		if steps++; steps%askEvery == 0 {
			_ = execution.From(ctx).Yield(ctx) // that ctx has ended is seen below
		}
		if len(w.events) == initialBatch || converted >= maxConverted || steps%askEvery == 0 && wait.Err() != nil {
			w.from, more = v.Key.Name, true
			return false
		}
		selected, err := ahead.matches(ctx, v)
		if undecided = err; err != nil {
			return false
		}
		if selected {
			w.emit(Added, v, v.Revision, false, nil)
			if !w.rq.presented(v) {
				converted += v.Len()
			}
		}
		return true
	})
	if undecided != nil {
		return undecided
	}
	if err := w.present(ctx); err != nil {
		return err
	}
	if !more {
		w.initial = nil
		if w.announce {
			w.events = append(w.events, Event{Type: Bookmark, Revision: w.start, InitialEnd: true})
		}
	}
	return nil
}

// addAll turns records into the events that they are for this selection.
func (w *Watch) addAll(ctx context.Context, records []*store.Record) error {
	if !w.sel.together() {
		for _, record := range records {
			before, now := true, true
			if !w.sel.all() {
				var err error
				if before, err = w.sel.matches(ctx, record.Old); err != nil {
					return err
				}
				if now, err = w.sel.matches(ctx, record.New); err != nil {
					return err
				}
			}
			w.add(record, before, now)
		}
		return nil
	}
	versions := make([]*store.Version, 0, 2*len(records))
	for _, record := range records {
		versions = append(versions, record.Old, record.New)
	}
	selected, err := w.sel.matchesAll(ctx, versions)
	if err != nil {
		return err
	}
	for i, record := range records {
		w.add(record, selected[2*i], selected[2*i+1])
	}
	return nil
}

// add turns a record, whose old and new version are selected or not, into the event that it is for this selection
// (WATCH-1). The object of a DELETED event is the last selected version, which is the old one. The record is added to
// the event only if the event is the same for all watchers: then they share its encoding.
func (w *Watch) add(record *store.Record, before, now bool) {
	previous, current, unfinished := record.Old, record.New, record.Unfinished
	if !before {
		previous = nil
	}
	if !now {
		current = nil
	}
	switch {
	case current == nil && previous == nil:
	case previous == nil:
		w.emit(Added, current, record.Revision, unfinished, record)
	case current != nil:
		w.emit(Modified, current, record.Revision, unfinished, record)
	case record.New != nil: // only this watch sees a deletion: the object has left its selection
		w.emit(Deleted, previous, record.Revision, unfinished, nil)
	default:
		w.emit(Deleted, previous, record.Revision, unfinished, record)
	}
}

// emit appends an event about a stored version. present converts it later, together with the others of the batch.
func (w *Watch) emit(t EventType, v *store.Version, revision int64, unfinished bool, record *store.Record) {
	if invariants.Enabled {
		w.check.event(w, t, v, revision)
	}
	e := Event{Type: t, Object: v, Revision: revision, Record: record, Unfinished: unfinished}
	w.behind = w.initial == nil && e.Shows() < revision
	w.events = append(w.events, e)
}

// present brings the objects of all events into the version and form of the request. A converted object belongs to
// this watch alone, so its event loses the record.
func (w *Watch) present(ctx context.Context) error {
	first := slices.IndexFunc(w.events, func(e Event) bool { return !w.rq.presented(e.Object) })
	if first < 0 {
		return nil
	}
	if err := w.readable(); err != nil {
		return err
	}
	events := w.events[first:]
	objects := make([]*Object, len(events))
	for i := range events {
		objects[i] = events[i].Object
	}
	var err error
	if w.made, err = w.rq.presentAll(ctx, objects); err != nil {
		return err
	}
	for i := range events {
		// The object was converted, so the encoded event in the record, which is that of the stored object, cannot be used.
		if e := &events[i]; e.Object != objects[i] {
			e.Object, e.Record = objects[i], nil
		}
	}
	return nil
}

// readable fails, and so ends the watch, if an event is about an unreadable object: a client that continued after it
// would never get the next state of the object.
func (w *Watch) readable() error {
	var failed readFailures
	for _, e := range w.events {
		if e.Object.Sidecar.Unreadable == nil {
			continue
		}
		if e.Type == Deleted {
			return apierr.NewStoreRead("saw a DELETED event, but object data is corrupt - "+unreadable(e.Object,
				e.Object.Sidecar.Unreadable).Error(), nil)
		}
		if failed.add(e.Object) {
			break
		}
	}
	return failed.err(w.rq.Resource)
}

// Revision is the revision up to which every event has been returned, for bookmarks; 0 during the initial events, and
// while some of the events of one revision have been returned and some have not.
func (w *Watch) Revision() int64 {
	if w.initial != nil || w.cursor.Within() {
		return 0
	}
	revision := max(w.start, w.cursor.Revision())
	if invariants.Enabled {
		w.check.bookmark(revision)
	}
	return revision
}

// Made is how many bytes of the objects that Next has returned were made for this watch alone, and are no stored
// versions, which all readers share.
func (w *Watch) Made() int { return w.made }

// Close ends the watch and frees its cursor. Who uses Ready calls Close between two calls of it.
func (w *Watch) Close() {
	w.unregister()
	w.cursor.Close()
}

// Empty is the zero value of the kind, which bookmarks carry (WATCH-4), without the content of metadata.
func (r *Resource) Empty() object.Value {
	zero := r.Schema().Zero()
	if zero.Kind() != object.Map {
		zero = object.MapOf()
	}
	if r.Blank != nil {
		zero = r.Blank(zero)
	}
	return zero.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(r.APIVersion())},
		{Key: "kind", Value: object.StringOf(r.Kind)},
	})
}
