package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
)

// initialBatch is how many synthetic ADDED events are made at a time.
const initialBatch = 512

// restingEvents is for how many events a waiting watch keeps room.
const restingEvents = 64

// Watch is a running watch: first, where the client asked for it, what there is (initial), then what happens (a cursor
// in the history). It holds a position and a selector, and nothing for later.
type Watch struct {
	rq       *Request
	sel      selection
	prefix   string
	initial  *store.Snapshot // what has still to be told of the beginning; nil when done
	from     string          // the name at which the initial events go on
	announce bool            // a bookmark says where the initial events end
	cursor   *store.Cursor
	start    int64 // the revision that the watch began after
	check    watchCheck
	events   []Event
}

// Watch starts a watch (WATCH-2, WATCH-5).
func (e *Engine) Watch(ctx context.Context, rq *Request, o WatchOptions) (*Watch, error) {
	sel, err := rq.selects(o.ListOptions)
	if err != nil {
		return nil, err
	}
	revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &Watch{rq: rq, sel: sel, prefix: rq.reach(&sel), start: revision}
	streaming := o.SendInitialEvents != nil && *o.SendInitialEvents
	if streaming {
		if err := e.waitFor(ctx, revision); err != nil {
			return nil, err
		}
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
	if life := rq.Resource.Stored.Life; life != nil && w.start < life.Since {
		return nil, tooOld(w.start, e.store.Revision())
	}
	w.cursor, err = e.store.WatchTerm(rq.Resource.Stored.Path, w.prefix, sel.term(), w.start)
	if errors.Is(err, store.ErrCompacted) {
		return nil, tooOld(w.start, e.store.Revision())
	}
	return w, err
}

func tooOld(revision, have int64) error {
	return apierr.NewExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, have))
}

// Next waits for events and returns them in revision order. The slice is good until the next call. The error is an
// apierr of reason Expired when the watch has fallen behind the history, or the context's.
func (w *Watch) Next(ctx context.Context) ([]Event, error) {
	w.rest()
	if w.initial != nil {
		return w.nextInitial(ctx)
	}
	for len(w.events) == 0 {
		if err := ctx.Err(); err != nil { // a busy collection of which nothing is selected never makes the cursor wait
			return nil, err
		}
		records, err := w.wait(ctx)
		if errors.Is(err, store.ErrCompacted) {
			return nil, tooOld(w.cursor.Revision(), w.cursor.Revision())
		}
		if err != nil {
			return nil, err
		}
		for _, record := range records { // a bounded number
			w.add(ctx, record)
		}
	}
	if err := w.present(ctx); err != nil {
		return nil, err
	}
	return w.events, nil
}

// wait waits for records, as long as the kind is served as it is. When that is over, so is the watch, as if its time were up.
func (w *Watch) wait(ctx context.Context) ([]*store.Record, error) {
	life := w.rq.Resource.Stored.Life
	both, stop := life.within(ctx)
	defer stop()
	records, err := w.cursor.Next(both)
	if err != nil && ctx.Err() == nil && life != nil && life.Err() != nil {
		return nil, ErrOver
	}
	return records, err
}

// ErrOver is that a watch ends, and not by an error: its kind is no longer served as it was.
var ErrOver = errors.New("engine: the kind that is watched is no longer served as it was")

// rest lets go of the last events: a watch that waits keeps none of them alive, and no room for a batch of the beginning.
func (w *Watch) rest() {
	clear(w.events)
	if w.events = w.events[:0]; w.initial == nil && cap(w.events) > restingEvents {
		w.events = nil
	}
}

// nextInitial tells a part of what there was at the beginning. It may tell nothing, where ctx is over before anything that is
// selected has come.
func (w *Watch) nextInitial(ctx context.Context) ([]Event, error) {
	more, steps, converted := false, 0, 0
	w.initial.Ascend(w.rq.Resource.Stored.Path, w.prefix, w.from, func(v *store.Version) bool {
		steps++
		if len(w.events) == initialBatch || converted >= maxConverted || steps%askEvery == 0 && ctx.Err() != nil {
			w.from, more = v.Key.Name, true
			return false
		}
		if w.sel.matches(ctx, v) {
			w.tell(ctx, Added, v, v.Revision, nil)
			if !w.rq.presented(v) {
				converted += len(v.Data)
			}
		}
		return true
	})
	if err := w.present(ctx); err != nil {
		return nil, err
	}
	if !more {
		w.initial = nil
		if w.announce {
			w.events = append(w.events, Event{Type: Bookmark, Revision: w.start, InitialEnd: true})
		}
	}
	return w.events, nil
}

// add turns a step of history into the event that it is for this selection (WATCH-1).
func (w *Watch) add(ctx context.Context, record *store.Record) {
	was, is := record.Old, record.New
	if !w.sel.all() {
		if !w.sel.matches(ctx, was) {
			was = nil
		}
		if !w.sel.matches(ctx, is) {
			is = nil
		}
	}
	switch {
	case is == nil && was == nil:
	case was == nil:
		w.tell(ctx, Added, is, record.Revision, record)
	case is != nil:
		w.tell(ctx, Modified, is, record.Revision, record)
	case record.New != nil: // it has left the selection, and is told of as it was there last
		w.tell(ctx, Deleted, was, record.Revision, nil)
	default:
		w.tell(ctx, Deleted, was, record.Revision, record)
	}
}

// tell appends an event about a stored version; present makes of it what the request wants to see.
func (w *Watch) tell(ctx context.Context, t EventType, v *store.Version, revision int64, record *store.Record) {
	if invariants.Enabled {
		w.check.event(ctx, w, t, v, revision)
	}
	w.events = append(w.events, Event{Type: t, Object: v, Revision: revision, Record: record})
}

// present presents the objects of all events together. Events about converted objects are nobody else's, so they take no
// record along.
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
	if err := w.rq.presentAll(ctx, objects); err != nil {
		return err
	}
	for i := range events {
		if e := &events[i]; e.Object != objects[i] {
			e.Object, e.Record = objects[i], nil
		}
	}
	return nil
}

// readable ends a watch that comes upon an object that cannot be read, and tells which. Who goes on behind it would never know what has
// become of it.
func (w *Watch) readable() error {
	var failed readFailures
	for _, e := range w.events {
		if e.Object.Sidecar.Unreadable == nil {
			continue
		}
		if e.Type == Deleted {
			return apierr.NewStoreRead("saw a DELETED event, but object data is corrupt - "+unreadable(e.Object, e.Object.Sidecar.Unreadable).Error(), nil)
		}
		if failed.add(e.Object) {
			break
		}
	}
	return failed.err(w.rq.Resource)
}

// Revision is the version up to which everything has been told, for bookmarks; 0 while the initial events last.
func (w *Watch) Revision() int64 {
	if w.initial != nil {
		return 0
	}
	revision := max(w.start, w.cursor.Revision())
	if invariants.Enabled {
		w.check.bookmark(revision)
	}
	return revision
}

// Close ends the watch and frees what it held.
func (w *Watch) Close() { w.cursor.Close() }

// Empty is the kind's zero value, which bookmarks carry (WATCH-4), in canonical form and without metadata content.
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
