package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// This file has how planes begin and end, and what limits them. See sequencer for what they share.

// Begin makes the commit of the change that has it the beginning of a plane.
type Begin struct {
	Plane  string // its ID, which no other plane ever has
	Origin string // the ID of the plane with whose objects it begins; "": it begins with none
	// Changes are its first changes.
	Changes []Change
	// Seen is not 0 if Changes make of Origin as of the revision Seen what the plane is to begin with. Whatever changes
	// in Origin after that is then undone in the plane. 0: what changes until the commit is a part of the plane.
	Seen int64
}

// Bounds are limits of a plane. They hold exactly: a commit that would pass them is refused. One that makes the plane
// smaller, or leaves it as large as it is, is accepted also beyond them.
type Bounds struct {
	Objects, Bytes int64 // of all versions; 0: no limit
	ReadOnly       bool  // no commits, and nothing expires
}

var (
	// ErrNoPlane means that there is no such plane, or that it ends.
	ErrNoPlane = errors.New("store: no such plane")
	// ErrPlane means that there is such a plane already.
	ErrPlane = errors.New("store: there is such a plane already")
	// ErrReadOnly means that the plane takes no writes.
	ErrReadOnly = errors.New("store: the plane takes no writes")
)

// BoundsError is the error of a commit that would pass a limit of its plane. No change was written.
type BoundsError struct {
	What      string // "objects" or "bytes"
	Used, Add int64  // without the commit, and what it would add
	Most      int64
}

func (e *BoundsError) Error() string {
	return fmt.Sprintf("the plane has %d %s, and %d more would be above its limit of %d", e.Used, e.What, e.Add, e.Most)
}

// writerOf returns the embedded writer, which a store has whose log may have several planes.
func (s *Store) writerOf() (*writer, error) {
	w, ok := s.Writer.(*writer)
	if !ok {
		return nil, fmt.Errorf("%w: planes need the embedded store", errors.ErrUnsupported)
	}
	return w, nil
}

// Plane returns the store of a plane in the same log; ErrNoPlane if there is none. It is valid until the plane ends:
// its calls return ErrClosed then.
func (s *Store) Plane(id string) (*Store, error) {
	w, err := s.writerOf()
	if err != nil {
		return nil, err
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	of := w.writers[id]
	if of == nil || of.ending {
		return nil, ErrNoPlane
	}
	return storeOf(of), nil
}

// Planes yields the IDs of all planes in the log but the first one, in order.
func (s *Store) Planes() iter.Seq[string] {
	var ids []string
	if w, err := s.writerOf(); err == nil {
		w.seq.Lock()
		for id := range w.writers {
			if id != "" {
				ids = append(ids, id)
			}
		}
		w.seq.Unlock()
	}
	slices.Sort(ids)
	return slices.Values(ids)
}

// ID is that of the store's plane; "" for the first one.
func (s *State) ID() string { return s.plane }

// Begun is the revision with which the plane has begun; 0 for the first one.
func (s *State) Begun() int64 { return s.begun }

// SetBounds limits the plane from now on.
func (s *Store) SetBounds(b Bounds) error {
	w, err := s.writerOf()
	if err != nil {
		return err
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	w.bounds = b
	w.plan()
	return nil
}

// Allows returns the error that a commit of changes would have now because of the limits of the plane. It is for who
// does not commit them.
func (s *Store) Allows(changes []Change) error {
	w, ok := s.Writer.(*writer)
	if !ok { // it has no limits
		return nil
	}
	w.seq.Lock()
	limited := w.bounds != (Bounds{})
	w.seq.Unlock()
	if !limited {
		return nil
	}
	versions, err := w.versions(changes)
	if err != nil {
		return err
	}
	w.seq.Lock()
	defer w.seq.Unlock()
	return w.allows(changes, versions)
}

// Usage is how much a plane has.
type Usage struct {
	Objects       int
	Bytes         int64
	Own           int64 // bytes that it has more than what it has begun with
	HistoryMemory int64 // approximate memory that its history takes
	Revision      int64
	Resting       int64 // see Rest
}

// Usage takes the time of a look-up.
func (s *State) Usage() Usage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	u := Usage{Objects: s.live.count, Bytes: s.live.bytes, Own: s.live.bytes,
		HistoryMemory: s.history.memory + s.history.memoBytes, Revision: s.revision, Resting: s.resting}
	if s.origin != nil {
		u.Own = max(0, u.Own-s.origin.bytes)
	}
	return u
}

// Rest drops what the state keeps for its readers: snapshots, and feeds that are held by a Collection. It is called
// when all who have used the store are gone. If done, those who follow the changes of the plane, such as its
// controllers, have nothing to do as of its revision; Usage says so from then on, also after a restart, until the next
// commit.
func (s *State) Rest(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent, s.rebuilt = nil, nil
	for f := range s.history.everyFeed {
		f.pinned = false
	}
	s.history.forget()
	if done {
		s.resting = s.revision
	}
}

// turns says whether a plane begins or ends with the commit.
func (c *Commit) turns() bool { return c.Begins != nil || c.Ends != "" }

// beginning is a Begin with the versions of its changes.
type beginning struct {
	*Begin
	versions []*Version
	seals    []*Seal
}

// beginning returns the Begin among changes; nil if there is none.
func (w *writer) beginning(ctx context.Context, changes []Change) (*beginning, error) {
	var b *beginning
	for i := range changes {
		if changes[i].Begin == nil {
			continue
		}
		if b != nil || w.state.plane != "" {
			return nil, errors.New("store: a commit of the first plane may begin one other plane")
		}
		b = &beginning{Begin: changes[i].Begin}
	}
	if b == nil {
		return nil, nil
	}
	var err error
	if b.versions, err = w.versions(b.Changes); err == nil {
		b.seals, err = w.seals(ctx, b.Changes, b.versions)
	}
	return b, err
}

// allows says whether the commit is within the bounds of the plane. To write what is there once more (Change.Again)
// always is. The caller holds seq.
func (w *writer) allows(changes []Change, versions []*Version) error {
	if w.bounds == (Bounds{}) {
		return nil
	}
	if len(changes) > 0 && !slices.ContainsFunc(changes, func(ch Change) bool { return !ch.Again }) {
		return nil
	}
	if w.bounds.ReadOnly && len(changes) > 0 {
		return ErrReadOnly
	}
	objects, bytes := int64(w.state.live.count), w.state.live.bytes
	for k, p := range w.pending {
		more, moreBytes := growth(w.state.live.get(k), p.version)
		objects, bytes = objects+more, bytes+moreBytes
	}
	var more, moreBytes int64
	for i := range changes {
		n, b := growth(w.latest(changes[i].Key), versions[i])
		more, moreBytes = more+n, moreBytes+b
	}
	switch most := &w.bounds; {
	case most.Objects > 0 && more > 0 && objects+more > most.Objects:
		return &BoundsError{"objects", objects, more, most.Objects}
	case most.Bytes > 0 && moreBytes > 0 && bytes+moreBytes > most.Bytes:
		return &BoundsError{"bytes", bytes, moreBytes, most.Bytes}
	}
	return nil
}

// growth is by how much a plane grows when a version takes the place of another; nil: there is none.
func growth(old, now *Version) (objects, bytes int64) {
	if old != nil {
		objects, bytes = -1, -int64(old.Len())
	}
	if now != nil {
		objects, bytes = objects+1, bytes+int64(now.Len())
	}
	return objects, bytes
}

// turns sets in a commit which plane begins or ends with it. The end of a plane is the deletion of the object that
// stands for it: so it does not matter who deletes it, and how. The caller holds seq.
func (w *writer) turns(c *Commit, changes []Change, begins *beginning) error {
	if w.state.plane != "" || len(w.config.PlaneResources) == 0 {
		return nil
	}
	for i := range changes {
		if !slices.Contains(w.config.PlaneResources, changes[i].Key.Resource) {
			continue
		}
		switch old := w.latest(changes[i].Key); {
		case changes[i].Data == nil && old != nil:
			if of := w.writers[old.Sidecar.UID]; of != nil {
				if c.Ends != "" {
					return errors.New("store: a commit may end one plane")
				}
				c.Ends = old.Sidecar.UID
			}
		case changes[i].Data != nil && old == nil && changes[i].Begin == nil:
			return fmt.Errorf("store: %s has no beginning", changes[i].Key)
		}
	}
	if begins != nil {
		if w.writers[begins.Plane] != nil || w.begun[begins.Plane] || begins.Plane == "" {
			return ErrPlane
		}
		from := w.writers[begins.Origin]
		switch {
		case begins.Origin == "":
		case from == nil || from.ending:
			return ErrNoPlane
		case begins.Seen != 0 && (begins.Seen < from.state.history.all.floor || from.sealedSince(begins.Seen)):
			// What has changed since is not in memory any more, or cannot be undone here: the caller has to look again.
			return &ConflictError{Want: begins.Seen, Have: from.state.revision}
		}
		c.Begins = &Beginning{Plane: begins.Plane, Origin: begins.Origin, Seals: begins.seals}
	}
	if c.Ends != "" {
		w.writers[c.Ends].ending = true
	}
	if begins != nil {
		w.begun[begins.Plane] = true
	}
	return nil
}

// putBeginning gives the first changes of a plane their revisions, and undoes what has changed in its origin since it
// was seen. The caller holds seq.
func (w *writer) putBeginning(c *Beginning, b *beginning) {
	put := func(k Key, v *Version) {
		w.next++
		if v != nil {
			v.Revision = w.next
		}
		c.Records = append(c.Records, &Record{Key: k, Revision: w.next, New: v})
	}
	changed := make(map[Key]bool, len(b.Changes))
	for i := range b.Changes {
		changed[b.Changes[i].Key] = true
		put(b.Changes[i].Key, b.versions[i])
	}
	if b.Seen == 0 {
		return
	}
	for _, r := range w.writers[b.Origin].since(b.Seen) {
		if changed[r.Key] {
			continue
		}
		changed[r.Key] = true
		var v *Version
		if r.Old != nil {
			v = r.Old.At(0)
		}
		put(r.Key, v)
		if c.Seals != nil {
			c.Seals = append(c.Seals, nil)
		}
	}
}

// sealedSince says whether a version that was replaced since a revision is to be encrypted, or is and did not
// decrypt. To write it again needs its Seal, which may take the call of another process. The caller holds seq.
func (w *writer) sealedSince(revision int64) bool {
	for _, r := range w.since(revision) {
		if r.Old == nil {
			continue
		}
		if r.Old.Sidecar.Undecrypted {
			return true
		}
		if w.config.Sealing != nil {
			if by, known := w.config.Sealing.Current(r.Key.Resource); by != 0 || !known {
				return true
			}
		}
	}
	return false
}

// since returns the changes of a plane after a revision, those included that are pending.
func (w *writer) since(revision int64) (records []*Record) {
	s := w.state
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := &s.history.all.records
	for i := firstAfter(all, revision); i < all.len(); i++ {
		records = append(records, all.at(i))
	}
	for k, p := range w.pending {
		records = append(records, &Record{Key: k, Revision: p.revision, Old: s.live.get(k), New: p.version})
	}
	return records
}

// begin makes the state of a plane. The caller holds seq.
func (w *sequencer) begin(b *Beginning, revision int64) {
	delete(w.begun, b.Plane)
	of := newContent()
	var from *origin
	rests := false
	if b.Origin != "" {
		o := w.writers[b.Origin].state
		o.mu.Lock()
		o.origin = originOf(&o.content, o.revision, o.origin)
		of, from, rests = o.fork(), o.origin, o.resting == o.revision
		o.mu.Unlock()
	}
	for _, r := range b.Records {
		old := of.live.get(r.Key)
		rests = rests && old != nil && r.New != nil
		of.set(r.Key, old, r.New, r.Revision)
		w.growth += changeBytes(r)
	}
	s := newState(w.config, w.window, w.packer, w.log, strings.Clone(b.Plane), of, revision)
	if of.undecrypted.Len() > 0 {
		notify(w.writers[""].state.unread)
	}
	s.origin, s.begun, s.history.horizon = from, revision, revision
	if rests { // who follows the changes of its origin has seen all objects that there are
		s.resting = revision
	}
	w.add(s)
}

// end ends a plane: its watches and all that waits. Nothing refers to its state afterwards but who has its store. The
// caller holds seq.
func (w *sequencer) end(plane string) {
	of := w.writers[plane]
	delete(w.writers, plane)
	if !of.planned.IsZero() {
		w.plans.Delete(plan{of.planned.UnixNano(), of})
	}
	clear(of.pending)
	of.state.End()
}

// AsOf returns the plane as it was at a revision, and the changes that make of what it is at the revision seen what it
// was then, for Begin. It returns ErrCompacted or ErrFuture as Snapshot does, and an error for a version that does not
// decrypt: its bytes are not those of the object.
func (s *State) AsOf(ctx context.Context, revision int64) (then *Snapshot, changes []Change, seen int64, err error) {
	if err := s.Reaches(revision); err != nil { // 0 would be the newest
		return nil, nil, 0, err
	}
	then, err = s.SnapshotContext(ctx, revision)
	if err != nil {
		return nil, nil, 0, err
	}
	now, err := s.Snapshot(0)
	if err != nil {
		return nil, nil, 0, err
	}
	difference(now.collections, then.collections, func(k Key, _, v *Version) bool {
		ch := Change{Key: k}
		if v != nil && v.Sidecar.Undecrypted {
			err = fmt.Errorf("store: %s as of revision %d: %w", k, revision, v.Sidecar.Unreadable)
			return false
		}
		if v != nil {
			sidecar := *v.Sidecar // that of v is shared, and the commit sets with which key the version is encrypted
			sidecar.SealedBy = 0
			ch.Data, ch.Sidecar = v.Data(), &sidecar
		}
		changes = append(changes, ch)
		return true
	})
	if err != nil {
		return nil, nil, 0, err
	}
	return then, changes, now.revision, nil
}

// Reaches says whether the plane can be looked at as of a revision: nil, ErrCompacted or ErrFuture.
func (s *State) Reaches(revision int64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case revision > s.revision:
		return ErrFuture
	case revision < s.history.horizon:
		return ErrCompacted
	}
	return nil
}
