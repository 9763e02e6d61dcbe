package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"plinth/internal/execution"
)

// A purge removes what an object was from everything that the store has: memory, the log, and the past. It is for a
// password that somebody has written into the wrong object: to write it anew is not enough, as there are versions.
//
// The problem: a version is in many places. The log has it as the new one of one commit and the old one of the next,
// also as a difference; a checkpoint has it, if it was live then, and another layer, if a plane has begun with it; a
// pack has it as a delta of its neighbors; memory has it for watches. To overwrite each of them where it stands cannot
// be done safely: a crash would leave files whose checksums are wrong. So a purge needs a moment, E, and moves all that
// the store needs behind it:
//
//  1. The log begins another file: E is the newest revision in the files so far (Eraser.Roll).
//  2. The past takes all changes up to E, and rewrites the packs with those of the object, without their versions
//     (Past.Purge). Who has made them, and when, stays.
//  3. The history is cut at E, as if all before had left the window: watches and exact lists begin after E, or are
//     answered from the past.
//  4. A checkpoint C ≥ E is written, which has the live versions alone, and all commits up to E are removed
//     (Eraser.Erase).
//
// When it returns nil, then for each version of the object that a change up to E has ended:
//
//	no file of the log or of the past has it;  no read of the state, of any revision, returns it
//
// and all other versions can be read as before, from the past if not from the history. The version that was live at E
// stays, also when it is overwritten later.
//
// After a crash between two of the steps there are packs with the versions or without, and commits or none; each read
// is answered from one of them, and another purge completes it: no step depends on what an earlier one has found.

// Purged is what a purge has removed, or would remove.
type Purged struct {
	Changes  int      // of the object, as far as they are known
	Versions int      // that changes have ended, and that were purged now
	Live     *Version // stays as it is; nil: there is none
	Until    int64    // E; 0: nothing was purged
	Copies   string   // where the log is copied to, for people; "": nowhere
}

// PurgedError is the error for a version that was purged.
type PurgedError struct {
	Key      Key
	Revision int64 // of the change that has ended the version
}

func (e *PurgedError) Error() string {
	return fmt.Sprintf("what %s was before its change of revision %d was purged", e.Key, e.Revision)
}

// ErrNoPurge means that the store cannot purge, as others keep what its objects were.
var ErrNoPurge = errors.New("store: other processes keep what its objects were")

// purgedVersion stands in a snapshot for a version that was purged. A list that has to show it fails, and one that does
// not select it is whole: to leave it out would say that the object was not there.
func purgedVersion(p *PastChange) *Version {
	return NewVersion(p.Key, 0, nil, &Sidecar{Undecrypted: true, Unreadable: &PurgedError{p.Key, p.Revision}})
}

// Purge removes all past versions of a key. With dryRun it only counts them. A key of which nothing is known has
// neither a live version nor changes: nothing was purged then.
func (s *Store) Purge(ctx context.Context, k Key, dryRun bool) (p Purged, err error) {
	w, ok := s.Writer.(*writer)
	if !ok {
		return Purged{}, ErrNoPurge
	}
	execution.Outside(ctx, func() { p, err = w.purge(ctx, k.clone(), dryRun) })
	return p, err
}

func (w *writer) purge(ctx context.Context, k Key, dryRun bool) (Purged, error) {
	p, err := w.purgeable(ctx, k)
	if err != nil || dryRun || p.Live == nil && p.Changes == 0 {
		return p, err
	}
	if p.Until, err = w.roll(); err != nil {
		return p, err
	}
	s := w.state
	if s.past != nil {
		for s.past.Until() < p.Until {
			if err := s.past.Pack(ctx); err != nil {
				return p, fmt.Errorf("the past cannot be written: %w", err)
			}
		}
		if _, _, err := s.past.Purge(ctx, s.plane, k, p.Until, false); err != nil {
			return p, fmt.Errorf("the past cannot be written: %w", err)
		}
	}
	if err := w.erase(ctx, k, p.Until); err != nil {
		return p, err
	}
	w.config.Logger.Info("the past of an object was purged", "resource", k.Resource, "object", k.Name, "plane", s.plane,
		"versions", p.Versions, "revision", p.Until)
	return p, nil
}

// purgeable counts what there is to purge. What the past does not keep is in the history, if at all.
func (w *writer) purgeable(ctx context.Context, k Key) (p Purged, err error) {
	s := w.state
	p.Live, _ = s.Get(k)
	if e, ok := w.log.(Eraser); ok {
		p.Copies = e.Copies()
	}
	if s.past != nil {
		if err := s.packed(ctx, s.Revision()); err != nil {
			return p, err
		}
		if p.Changes, p.Versions, err = s.past.Purge(ctx, s.plane, k, math.MaxInt64, true); err != nil {
			return p, err
		}
		if s.past.Since(k.Resource) < math.MaxInt64 {
			return p, nil
		}
	}
	return p, s.changesOfHistory(ctx, k, 0, func(c *PastChange) bool {
		if p.Changes++; c.Old != nil {
			p.Versions++
		}
		return true
	})
}

// roll begins another file of the log, and returns a revision up to which no commit is in the new one. Its commits are
// visible: that of an Append which has just ended will be at once.
func (w *sequencer) roll() (int64, error) {
	w.seq.Lock()
	until := w.synced
	w.seq.Unlock()
	var err error
	if e, ok := w.log.(Eraser); ok {
		until, err = e.Roll()
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	switch {
	case errors.Is(err, ErrNoRoom):
		return 0, err
	case err != nil && w.refused == nil:
		w.breaks(err)
	}
	for w.synced < until && w.refused == nil {
		w.idle.Wait()
	}
	return until, w.refused
}

// erase has all states, and the log, forget the history up to a revision.
func (w *writer) erase(ctx context.Context, k Key, until int64) error {
	w.compacting.Lock()
	defer w.compacting.Unlock()
	w.window.cut(until, w.config.Now())
	w.state.forgetPurged()
	e, ok := w.log.(Eraser)
	if ok {
		w.forgetInOrigins(k)
		_, c := w.checkpoint(true)
		if err := e.Erase(until, c); err != nil {
			return err
		}
	}
	return w.endAcross(ctx, k)
}

// forgetPurged drops the snapshot that may have what was purged, and those that are being made.
func (s *State) forgetPurged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rebuilt = nil
	s.purges++
}

// forgetInOrigins removes the versions of a key from the content with which planes have begun, except for those that a
// plane still has. A checkpoint would have them in the layers of the origins, though no plane shows them any more. An
// origin never changes, so others take the places of those that have such a version, or a parent that has.
//
// The caller holds compacting: no checkpoint reads the origins.
func (w *sequencer) forgetInOrigins(k Key) {
	w.seq.Lock()
	defer w.seq.Unlock()
	live := map[int64]bool{} // by revision
	for _, of := range w.writers {
		if v := of.state.live.get(k); v != nil {
			live[v.Revision] = true
		}
	}
	now := map[*origin]*origin{nil: nil}
	var without func(o *origin) *origin
	without = func(o *origin) *origin {
		in, known := now[o]
		if known {
			return in
		}
		if in = o.without(k, live); in.parent != without(o.parent) {
			in = &origin{collections: in.collections, since: o.since, revision: o.revision, bytes: in.bytes,
				parent: without(o.parent)}
		}
		now[o] = in
		return in
	}
	for _, of := range w.writers {
		s := of.state
		s.mu.Lock()
		s.origin = without(s.origin)
		s.mu.Unlock()
	}
}

// without returns the origin without the version of a key, unless the revision of that is among those of keep. Other
// planes share the trees, and may be copying them, which changes them (Image). So the one of the resource is made anew.
func (o *origin) without(k Key, keep map[int64]bool) *origin {
	t, ok := o.collections.Get(k.Resource)
	if !ok {
		return o
	}
	v, ok := t.names.Get(k.Name)
	if !ok || keep[v.Revision] {
		return o
	}
	names, all := newNames(), newVersions().collections
	t.names.Scan(func(name string, v *Version) bool {
		if name != k.Name {
			names.Set(name, v)
		}
		return true
	})
	o.collections.Scan(func(resource string, t *collection) bool {
		all.Set(resource, t)
		return true
	})
	all.Set(t.resource, &collection{resource: t.resource, epoch: t.epoch, names: names, changed: t.changed})
	return &origin{collections: all, since: o.since, revision: o.revision, bytes: o.bytes - int64(v.Len()),
		parent: o.parent}
}

// endAcross ends the lists of all planes that have versions of a key in their histories, and returns when they have
// ended. Their readers begin again.
func (w *sequencer) endAcross(ctx context.Context, k Key) error {
	var ending []*Across
	w.seq.Lock()
	for a := range w.across {
		if k.Resource == a.config.Resource {
			a.ending, a.queue = errPurged, nil
			ending = append(ending, a)
		}
	}
	w.seq.Unlock()
	for _, a := range ending {
		notify(a.arrived)
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// errPurged is why an Across ends.
var errPurged = errors.New("the past of an object was purged")
