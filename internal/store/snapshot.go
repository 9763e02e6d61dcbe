package store

import (
	"bytes"
	"context"
	"slices"
	"time"
)

// A chunked list asks for the same old revision again and again, so some snapshots are remembered: these many that were
// newest once, as long as history in memory keeps their versions anyway, and the last rebuilt one for a while.
const (
	recentSnapshots = 8
	rebuiltFor      = 30 * time.Second
)

// Snapshot returns the state as of a revision, 0 for the newest one, which costs nothing. An older one is rebuilt by
// undoing history, for the resources named, or for all of them: name what you want to read. It answers ErrCompacted for
// a revision before the window, and ErrFuture for one that is yet to come.
func (s *State) Snapshot(revision int64, resources ...string) (*Snapshot, error) {
	return s.SnapshotContext(context.Background(), revision, resources...)
}

// SnapshotContext is Snapshot that gives up with the error of ctx: an old revision may take a long time to rebuild.
func (s *State) SnapshotContext(ctx context.Context, revision int64, resources ...string) (*Snapshot, error) {
	s.mu.RLock()
	if n := len(s.recent); n > 0 && s.recent[n-1].revision == s.revision && (revision == 0 || revision == s.revision) {
		sn := s.recent[n-1]
		s.mu.RUnlock()
		return sn, nil
	}
	s.mu.RUnlock()

	s.mu.Lock()
	if revision == 0 || revision == s.revision {
		defer s.mu.Unlock()
		return s.newest(), nil
	}
	if sn, err := s.remembered(revision, resources); sn != nil || err != nil {
		s.mu.Unlock()
		return sn, err
	}
	s.mu.Unlock()
	return s.rebuild(ctx, revision, resources)
}

// newest returns the snapshot of now. The caller holds mu.
func (s *State) newest() *Snapshot {
	if n := len(s.recent); n > 0 && s.recent[n-1].revision == s.revision {
		return s.recent[n-1]
	}
	sn := &Snapshot{revision: s.revision, collections: s.live.freeze()}
	if len(s.recent) == recentSnapshots {
		copy(s.recent, s.recent[1:])
		s.recent = s.recent[:recentSnapshots-1]
	}
	s.recent = append(s.recent, sn)
	return sn
}

// remembered returns an older snapshot that is still around. The caller holds mu.
func (s *State) remembered(revision int64, resources []string) (*Snapshot, error) {
	if revision > s.revision {
		return nil, ErrFuture
	}
	if revision < s.history.horizon {
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
	return nil, nil
}

func (sn *Snapshot) covers(resources []string) bool {
	for _, r := range resources {
		if sn.only != nil && !slices.Contains(sn.only, r) {
			return false
		}
	}
	return sn.only == nil || len(resources) > 0
}

// forgetSnapshots drops those that would keep versions alive that history let go. The caller holds mu.
func (s *State) forgetSnapshots() {
	n := 0
	for n < len(s.recent) && s.recent[n].revision < s.history.all.floor {
		n++
	}
	if n > 0 {
		s.recent = append(s.recent[:0:0], s.recent[n:]...)
	}
	if s.rebuilt != nil && s.config.Now().Sub(s.rebuiltAt) > rebuiltFor {
		s.rebuilt = nil
	}
}

// rebuild takes the newest state and undoes what happened behind a revision: what each key was then is the old version
// of the first record about it since.
func (s *State) rebuild(ctx context.Context, revision int64, resources []string) (*Snapshot, error) {
	undo := map[Key]*Version{}
	wanted := func(resource string) bool { return len(resources) == 0 || slices.Contains(resources, resource) }
	read, steps := revision, 0 // up to here the log was read
	for {
		s.mu.Lock()
		floor := s.floorOf(resources)
		if read >= floor {
			break
		}
		s.mu.Unlock()
		err := s.replay(read, floor, func(c *Commit) error {
			if steps++; steps%256 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
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
			return nil, err
		}
		read = max(read, floor)
	}
	// Under the lock: copies of the roots, and the records to undo. A copy-on-write tree is marked as shared by the copy,
	// so nobody else may copy it meanwhile.
	sn := &Snapshot{revision: revision, only: resources, collections: s.live.freeze().Copy()}
	s.live.collections.Scan(func(resource string, t *collection) bool {
		if wanted(resource) {
			// When it changed last before the revision is not known where it has changed since.
			sn.collections.Set(resource, &collection{
				resource: resource, epoch: t.epoch, names: t.names.Copy(), changed: min(t.changed, revision),
			})
		}
		return true
	})
	var records []*Record
	for resource, f := range s.history.feeds {
		if wanted(resource) {
			for i := firstAfter(&f.records, revision); i < f.records.len(); i++ {
				records = append(records, f.records.at(i))
			}
		}
	}
	s.mu.Unlock()

	for _, r := range records {
		if _, seen := undo[r.Key]; !seen {
			undo[r.Key] = r.Old
		}
	}
	for k, v := range undo {
		sn.undo(k, v)
	}
	s.mu.Lock()
	s.rebuilt, s.rebuiltAt = sn, s.config.Now()
	s.mu.Unlock()
	return sn, nil
}

// floorOf is up to where memory lost records of these resources, or of any. The caller holds mu.
func (s *State) floorOf(resources []string) int64 {
	if len(resources) == 0 {
		return s.history.all.floor
	}
	floor := int64(0)
	for _, r := range resources {
		f := s.history.opened
		if feed := s.history.feeds[r]; feed != nil {
			f = feed.floor
		}
		floor = max(floor, f)
	}
	return floor
}

// undo sets what a key was. A live version with the same bytes in it serves as well as its copy from the log.
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
	if live, ok := t.names.Get(k.Name); ok && live.Revision == v.Revision && bytes.Equal(live.Data, v.Data) {
		return
	}
	t.names.Set(k.Name, v)
}
