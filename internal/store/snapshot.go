package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"plinth/internal/invariants"
)

// Pages of one list need the same old revision, so some snapshots are kept: up to recentSnapshots that once were the
// newest, as long as the history in memory keeps their versions anyway, and the last rebuilt one, for rebuiltFor.
//
//	all.floor ≤ revisions of State.recent ≤ newest revision, ascending
const (
	recentSnapshots = 8
	rebuiltFor      = 30 * time.Second
)

// Snapshot returns the state as of a revision, 0 for the newest one, which costs nothing. An older one that is not kept
// is rebuilt, for the named resources, or for all of them if none is named. Reading a resource that was not named
// panics. Snapshot returns ErrCompacted for a revision before the horizon, and ErrFuture for one that does not exist
// yet.
func (s *State) Snapshot(revision int64, resources ...string) (*Snapshot, error) {
	return s.SnapshotContext(context.Background(), revision, resources...)
}

// SnapshotContext is Snapshot with a context that bounds the time to rebuild.
func (s *State) SnapshotContext(ctx context.Context, revision int64, resources ...string) (*Snapshot, error) {
	// The usual case, the newest snapshot exists, needs a read lock only.
	s.mu.RLock()
	if n := len(s.recent); n > 0 && s.recent[n-1].revision == s.revision && (revision == 0 || revision == s.revision) {
		sn := s.recent[n-1]
		s.mu.RUnlock()
		return sn, nil
	}
	s.mu.RUnlock()

	s.mu.Lock()
	// Making a new snapshot changes the state: freeze starts a new epoch. So the lock is taken for writing.
	if revision == 0 || revision == s.revision {
		defer s.mu.Unlock()
		return s.newest(), nil
	}
	sn, err := s.kept(revision, resources)
	purges := s.purges
	s.mu.Unlock()
	var readable bool
	if sn != nil {
		return sn, nil
	}
	if err == nil {
		sn, readable, err = s.rebuild(ctx, revision, resources)
	}
	if errors.Is(err, ErrCompacted) { // be it since a moment ago
		sn, readable, err = s.rebuildPast(ctx, revision, resources)
	}
	if err != nil {
		return nil, err
	}
	if readable { // else it is rebuilt for the next one: what did not decrypt may be readable by then
		s.keep(sn, purges)
	}
	return sn, nil
}

// newest returns the snapshot of the current revision. The caller holds mu for writing: freeze starts a new epoch.
func (s *State) newest() *Snapshot {
	if n := len(s.recent); n > 0 && s.recent[n-1].revision == s.revision {
		return s.recent[n-1]
	}
	// The snapshot shares all collections with the live versions. The next write to a collection copies its root.
	sn := &Snapshot{revision: s.revision, collections: s.live.freeze(), since: s.live.since}
	if len(s.recent) == recentSnapshots {
		// Drop the oldest one.
		copy(s.recent, s.recent[1:])
		s.recent = s.recent[:recentSnapshots-1]
	}
	s.recent = append(s.recent, sn)
	return sn
}

// kept returns an older snapshot that is kept, or nil, or an error if the revision has no snapshot. The caller holds
// mu.
func (s *State) kept(revision int64, resources []string) (*Snapshot, error) {
	if revision > s.revision {
		return nil, ErrFuture
	}
	compacted := revision < s.history.horizon
	if compacted && s.past == nil {
		return nil, ErrCompacted
	}
	for _, sn := range s.recent {
		if sn.revision == revision {
			return sn, nil
		}
	}
	if sn := s.rebuilt; sn != nil && sn.revision == revision && sn.covers(resources) {
		return sn, nil
	}
	if compacted {
		return nil, ErrCompacted
	}
	return nil, nil
}

// covers says whether the snapshot holds all of these resources; an empty list means all resources.
func (sn *Snapshot) covers(resources []string) bool {
	for _, r := range resources {
		if sn.only != nil && !slices.Contains(sn.only, r) {
			return false
		}
	}
	return sn.only == nil || len(resources) > 0
}

// forgetSnapshots drops the snapshots that would keep versions in memory that the history has dropped. The caller
// holds mu.
//
//	after it: a kept snapshot holds no version that neither the live state nor a record in memory has
func (s *State) forgetSnapshots() {
	n := 0
	for n < len(s.recent) && s.recent[n].revision < s.history.all.floor {
		n++
	}
	if n > 0 {
		s.recent = append(s.recent[:0:0], s.recent[n:]...)
	}
	// A rebuilt snapshot may have the only reference to a version, so it is kept only for the next pages of a list.
	if s.rebuilt != nil && s.config.Now().Sub(s.rebuiltAt) > rebuiltFor {
		s.rebuilt = nil
	}
}

// rebuild makes the snapshot of an old revision.
//
// The problem: a client that lists in chunks, or starts a watch, may name any revision of the last minutes. A snapshot
// of each revision would keep all its versions in memory. But every record has the old version of its key, so the state
// can be undone from the newest one: for each key that changed since, its version as of the revision is the old version
// of the first record after it. The cost is linear in the number of records since, and not in the number of objects:
//
//	version of k as of R = Old of the first record of k with Revision > R, or the live version if there is none
//
// The oldest of these records may be in the log only. They are read first, without a lock; meanwhile memory may lose
// more records to the log, so the log is read on until it reaches the oldest record in memory. Then, under one hold of
// the lock, the roots of the live collections are copied and the records in memory collected: together they are the
// history from R to the revision of the copied state.
//
// The snapshot is the caller's. readable is false if some of its versions did not decrypt.
func (s *State) rebuild(ctx context.Context, revision int64, resources []string) (sn *Snapshot, readable bool,
	err error) {
	// undo has, for each key that changed since, its version as of the revision; nil: there was none.
	undo := map[Key]*Version{}
	wanted := func(resource string) bool { return len(resources) == 0 || slices.Contains(resources, resource) }
	read, steps := revision, 0 // the log was read up to here
	for {
		s.mu.Lock()
		// floor is read again in each round: while the log is read, memory may lose more records to it.
		floor := s.floorOf(resources)
		// The lock is still held behind the loop: memory has all records after read, and stays so until they
		// are collected.
		if read >= floor {
			break
		}
		s.mu.Unlock()
		err := s.replay(ctx, read, floor, resources, func(c *Commit) error {
			if steps++; steps%256 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			// Also for a commit without wanted changes: read is the revision up to which the log was read.
			read = c.Revision
			for _, lent := range c.Records {
				if !wanted(lent.Key.Resource) || lent.Revision <= revision {
					continue
				}
				if _, seen := undo[lent.Key]; !seen {
					k := lent.Key.clone()
					undo[k] = s.copyVersion(k, lent.Old)
				}
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		read = max(read, floor)
	}
	// Copying a copy-on-write tree also marks the original as shared, so it is done under the lock. A resource without
	// a collection has had no versions since live.since, which may be later than the snapshot's own revision.
	sn = &Snapshot{
		revision: revision, only: resources, collections: s.live.freeze().Copy(), since: min(s.live.since, revision),
	}
	s.live.collections.Scan(func(resource string, t *collection) bool {
		if wanted(resource) {
			// If it changed since, its last change before the revision is not known.
			sn.collections.Set(resource, &collection{
				resource: resource, epoch: t.epoch, names: t.names.Copy(), changed: min(t.changed, revision),
			})
		}
		return true
	})
	// They are collected under the lock and applied without it: a record never changes.
	var records []*Record
	for resource, f := range s.history.feeds {
		if wanted(resource) {
			for i := firstAfter(&f.records, revision); i < f.records.len(); i++ {
				records = append(records, f.records.at(i))
			}
		}
	}
	s.mu.Unlock()

	// The records of one resource are in order, which is enough: the first record of a key is the first one of
	// its resource.
	for _, r := range records {
		if _, seen := undo[r.Key]; !seen {
			undo[r.Key] = r.Old
		}
	}
	readable = true
	for k, v := range undo {
		sn.undo(k, v)
		readable = readable && (v == nil || !v.Sidecar.Undecrypted)
	}
	if invariants.Enabled {
		sn.check(wanted)
	}
	return sn, readable, nil
}

// keep keeps a rebuilt snapshot for the next pages of a list, unless something was purged since purges was read, which
// it may have.
func (s *State) keep(sn *Snapshot, purges int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.purges == purges {
		s.rebuilt, s.rebuiltAt = sn, s.config.Now()
	}
}

// check fails if a rebuilt snapshot has a version that was written after its revision. Large collections are left out:
// they take too long for each test.
func (sn *Snapshot) check(wanted func(resource string) bool) {
	sn.collections.Scan(func(resource string, t *collection) bool {
		if !wanted(resource) || t.names.Len() > 1<<12 {
			return true
		}
		t.names.Scan(func(name string, v *Version) bool {
			if v.Revision > sn.revision || t.changed > sn.revision {
				invariants.Fail("store: rebuilt for %d, and has %s/%s at %d, collection changed at %d",
					sn.revision, resource, name, v.Revision, t.changed)
			}
			return true
		})
		return true
	})
}

// floorOf is the revision up to which records of these resources (of all resources, if there are none) may have left
// memory: memory has all later ones. The caller holds mu.
func (s *State) floorOf(resources []string) int64 {
	if len(resources) == 0 {
		return s.history.all.floor
	}
	floor := int64(0)
	for _, r := range resources {
		f := s.history.newFloor()
		if feed := s.history.feeds[r]; feed != nil {
			f = feed.floor
		}
		floor = max(floor, f)
	}
	return floor
}

// undo sets the version that a key had; nil: none. The trees belong to this snapshot until it is returned, so they may
// be changed. The version in the tree is always a later one, as a record after the revision has changed the key.
func (sn *Snapshot) undo(k Key, v *Version) {
	t, ok := sn.collections.Get(k.Resource)
	if !ok {
		if v == nil {
			return
		}
		t = &collection{resource: k.Resource, names: newNames(), changed: sn.revision}
		sn.collections.Set(k.Resource, t)
	}
	if v == nil {
		t.names.Delete(k.Name)
		return
	}
	t.names.Set(k.Name, v)
}

// Scan yields all versions of a snapshot of all resources, ordered by resource and name.
func (sn *Snapshot) Scan(yield func(*Version) bool) { scan(sn.collections, yield) }
