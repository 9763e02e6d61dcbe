package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"plinth/internal/execution"
)

// Past is the changes that a log keeps for longer than watches can continue from: a Log may be one (package past). It
// has those up to a revision; what follows is in the log alone. Its methods may be called concurrently, and return
// ErrCompacted where it does not reach back.
type Past interface {
	// Until is the revision up to which it has all changes, and Since the oldest revision as of which a resource can be
	// read; math.MaxInt64: there is none.
	Until() int64
	Since(resource string) int64
	// Pack has it take all changes that the log has.
	Pack(ctx context.Context) error
	// After yields, of each of the names, which ascend, the first change after a revision; of those which have none,
	// nothing.
	After(ctx context.Context, plane, resource string, names []string, after int64, yield func(*PastChange) error) error
	// Deleted yields the names that were deleted after a revision, some of them several times.
	Deleted(ctx context.Context, plane, resource string, after int64, yield func(name string)) error
	// Before yields the changes of an object before a revision, the newest first, until yield returns false or older
	// ones are not kept any more.
	Before(ctx context.Context, plane string, k Key, before int64, yield func(*PastChange) bool) error
	// RevisionAt is the newest revision whose commit has a time, in nanoseconds since 1970, that is not after one; false:
	// it is older than what is kept.
	RevisionAt(ctx context.Context, nanoseconds int64) (revision int64, ok bool, err error)
	// Purge removes, durably, the versions of a key that its changes up to a revision have ended, and returns how many
	// changes there are, and how many had a version. It keeps who has made them, and when. With dryRun it only counts.
	Purge(ctx context.Context, plane string, k Key, until int64, dryRun bool) (changes, versions int, err error)
}

// PastChange is one change of a key as the past has it.
type PastChange struct {
	Key      Key
	Revision int64
	Time     int64        // of the commit, in nanoseconds since 1970
	By       *Attribution // nil: it is not known, or the store itself has done it, as the version had expired
	Deleted  bool
	// Old is the version that it has ended; nil: the change has created the object, or Purged. The sidecar has what is
	// not part of the bytes, as those that a log lends.
	Old *Version
	// Purged says that it has ended a version that was purged.
	Purged bool
}

// ErrNoPast means that the store keeps nothing for longer than watches need it.
var ErrNoPast = errors.New("the past is not kept")

// PastSince is the oldest revision as of which a resource can be read, be it that the history has it or the past. What
// is before the plane has begun is not its past.
func (s *State) PastSince(resource string) int64 {
	s.mu.RLock()
	since := s.history.horizon
	s.mu.RUnlock()
	if s.past != nil {
		since = min(since, max(s.begun, s.past.Since(resource)))
	}
	return since
}

// rebuildPast makes the snapshot of a revision that is before the history. It is that of the revision up to which there
// is a past, P, which the history reaches back to, without what has changed until then. What has changed is found
// without reading all of it:
//
//	v is the version of k as of P, v.Revision ≤ R   ⇒  v is that as of R
//	v.Revision > R, or there is none and k was deleted after R
//	    ⇒  the version as of R is the one that the first change of k after R has ended
func (s *State) rebuildPast(ctx context.Context, revision int64, resources []string) (sn *Snapshot, readable bool,
	err error) {
	if s.past == nil || len(resources) == 0 {
		return nil, false, ErrCompacted
	}
	for _, resource := range resources {
		if revision < s.PastSince(resource) {
			return nil, false, ErrCompacted
		}
	}
	until := s.past.Until()
	for {
		sn, readable, err = s.rebuild(ctx, max(revision, until), resources)
		now := s.past.Until()
		if !errors.Is(err, ErrCompacted) || now == until {
			break
		}
		until = now // the past has grown, and the history does not reach back to where it has ended
	}
	if err != nil || until <= revision {
		return sn, readable, err
	}
	sn.revision, sn.since = revision, min(sn.since, revision)
	for _, resource := range resources {
		ok, err := s.undoPast(ctx, sn, resource)
		if err != nil {
			return nil, false, err
		}
		readable = readable && ok
	}
	return sn, readable, nil
}

// undoPast makes of a collection as of the end of the past what it was as of the snapshot. readable is false if a
// version did not decrypt.
func (s *State) undoPast(ctx context.Context, sn *Snapshot, resource string) (readable bool, err error) {
	changed := map[string]bool{}
	if t, ok := sn.collections.Get(resource); ok {
		t.changed = min(t.changed, sn.revision)
		t.names.Scan(func(name string, v *Version) bool {
			if v.Revision > sn.revision {
				changed[name] = true
			}
			return true
		})
	}
	if err := s.past.Deleted(ctx, s.plane, resource, sn.revision, func(name string) { changed[name] = true }); err != nil {
		return false, err
	}
	names := slices.Sorted(maps.Keys(changed))
	found := 0
	readable = true
	err = s.past.After(ctx, s.plane, resource, names, sn.revision, func(p *PastChange) error {
		found++
		v := s.copyVersion(p.Key, p.Old)
		if p.Purged {
			v = purgedVersion(p)
		}
		readable = readable && (v == nil || !v.Sidecar.Undecrypted)
		sn.undo(p.Key, v)
		return nil
	})
	if err == nil && found != len(names) {
		err = fmt.Errorf("store: the past has changes of %d of the %d objects of %s that have changed after %d", found,
			len(names), resource, sn.revision)
	}
	return readable, err
}

// At returns the version that a key had as of a revision; nil: there was none. It is a PurgedError if that was purged.
func (s *State) At(ctx context.Context, k Key, revision int64) (*Version, error) {
	switch err := s.Reaches(revision); {
	case errors.Is(err, ErrCompacted) && revision >= s.PastSince(k.Resource):
	case err != nil:
		return nil, err
	}
	v, found, err := s.inMemory(k, revision)
	if found || err != nil {
		return v, err
	}
	if s.past == nil {
		return s.fromSnapshot(ctx, k, revision)
	}
	// The first change is in the past, or memory has it by now, or the part of the log between the two.
	if until := s.past.Until(); until > revision && revision >= s.past.Since(k.Resource) {
		var first *PastChange
		err := s.past.After(ctx, s.plane, k.Resource, []string{k.Name}, revision, func(p *PastChange) error {
			first = p
			return nil
		})
		if err != nil {
			return nil, err
		}
		switch {
		case first != nil && first.Purged:
			return nil, &PurgedError{k, first.Revision}
		case first != nil:
			return s.copyVersion(k, first.Old), nil
		}
		if v, found, err = s.inMemory(k, until); found || err != nil {
			return v, err
		}
	}
	return s.fromSnapshot(ctx, k, revision)
}

// fromSnapshot is At that makes a snapshot.
func (s *State) fromSnapshot(ctx context.Context, k Key, revision int64) (*Version, error) {
	sn, err := s.SnapshotContext(ctx, revision, k.Resource)
	if err != nil {
		return nil, err
	}
	v, _ := sn.Get(k)
	if v != nil && errors.As(v.Sidecar.Unreadable, new(*PurgedError)) {
		return nil, v.Sidecar.Unreadable
	}
	return v, nil
}

// inMemory looks for the version of a key as of a revision among what is in memory: the live version, and those that
// records have ended.
func (s *State) inMemory(k Key, revision int64) (v *Version, found bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended {
		return nil, false, ErrClosed
	}
	v = s.live.get(k)
	if v != nil && v.Revision <= revision {
		return v, true, nil
	}
	if revision < s.floorOf([]string{k.Resource}) {
		return nil, false, nil
	}
	if f := s.history.feeds[k.Resource]; f != nil {
		for i := firstAfter(&f.records, revision); i < f.records.len(); i++ {
			if r := f.records.at(i); r.Key == k {
				return r.Old, true, nil
			}
		}
	}
	return v, true, nil
}

// Changes yields the changes of a key before a revision, the newest first, until yield returns false or older ones are
// not kept any more; 0: all of them. The sidecars of their versions are complete. Without a past they are those of the
// history, of which neither the time nor who has made them need be known.
func (s *State) Changes(ctx context.Context, k Key, before int64, yield func(*PastChange) bool) error {
	if s.past == nil {
		return s.changesOfHistory(ctx, k, before, yield)
	}
	newest, err := s.withPast()
	if err != nil {
		return err
	}
	if before == 0 || before > newest {
		before = newest + 1
	}
	if err := s.packed(ctx, before-1); err != nil {
		return err
	}
	return s.past.Before(ctx, s.plane, k, before, func(p *PastChange) bool {
		if p.Old != nil {
			p.Old = s.copyVersion(k, p.Old)
		}
		return yield(p)
	})
}

// Limits of the changes that are read of a history, which is read from its oldest end: the newest ones are kept.
const (
	maxHistoryChanges = 1000
	maxHistoryBytes   = 16 << 20
)

// changesOfHistory is Changes without a past. As with a snapshot (rebuild), the oldest changes may be in the log only,
// which is read until memory has all that follow.
func (s *State) changesOfHistory(ctx context.Context, k Key, before int64, yield func(*PastChange) bool) error {
	var all []*PastChange // the oldest first
	bytes := 0
	size := func(p *PastChange) int {
		if p.Old == nil {
			return 0
		}
		return p.Old.Len()
	}
	keep := func(p *PastChange) {
		if before != 0 && p.Revision >= before {
			return
		}
		all, bytes = append(all, p), bytes+size(p)
		for len(all) > maxHistoryChanges || bytes > maxHistoryBytes && len(all) > 1 {
			bytes -= size(all[0])
			all = all[1:]
		}
	}
	read := int64(0)
	for {
		s.mu.RLock()
		if s.ended {
			s.mu.RUnlock()
			return ErrClosed
		}
		floor := s.floorOf([]string{k.Resource})
		if horizon := s.history.horizon; read < horizon {
			// Between what was read and the horizon changes may be missing: of the record nothing older can be told.
			all, bytes, read = nil, 0, horizon
		}
		if read >= floor {
			break // the lock is held until the records in memory are collected
		}
		s.mu.RUnlock()
		err := s.replay(ctx, read, floor, []string{k.Resource}, func(c *Commit) error {
			read = c.Revision
			by, err := AttributionOf(c.By)
			for _, r := range c.Records {
				if err == nil && r.Key == k && (r.Old != nil || r.New != nil) {
					keep(&PastChange{Key: k, Revision: r.Revision, Time: c.Time, By: by, Deleted: r.New == nil,
						Old: s.copyVersion(k, r.Old)})
				}
			}
			return err
		})
		switch {
		case errors.Is(err, ErrCompacted): // by now, or in an etcd that others compact: older ones are not kept
			all, bytes = nil, 0
		case err != nil:
			return err
		}
		read = max(read, floor)
	}
	if f := s.history.feeds[k.Resource]; f != nil {
		for i := firstAfter(&f.records, read); i < f.records.len(); i++ {
			if r := f.records.at(i); r.Key == k && (r.Old != nil || r.New != nil) {
				keep(&PastChange{Key: k, Revision: r.Revision, Deleted: r.New == nil, Old: r.Old})
			}
		}
	}
	s.mu.RUnlock()
	for _, p := range slices.Backward(all) {
		if !yield(p) {
			return nil
		}
	}
	return nil
}

// Gone yields the versions as of a revision of those objects of a resource that were deleted since.
func (s *State) Gone(ctx context.Context, resource string, revision int64, yield func(*Version)) error {
	newest, err := s.withPast()
	if err == nil {
		err = s.packed(ctx, newest)
	}
	if err != nil {
		return err
	}
	names := map[string]bool{}
	err = s.past.Deleted(ctx, s.plane, resource, revision, func(name string) { names[name] = true })
	if err != nil {
		return err
	}
	return s.past.After(ctx, s.plane, resource, slices.Sorted(maps.Keys(names)), revision, func(p *PastChange) error {
		if p.Old != nil { // else it was made after the revision
			yield(s.copyVersion(p.Key, p.Old))
		}
		return nil
	})
}

// RevisionAt is the revision that the store had at a moment, by the clock of those who have written; ErrCompacted: that
// is not known any more.
func (s *State) RevisionAt(ctx context.Context, moment time.Time) (int64, error) {
	newest, err := s.withPast()
	if err != nil {
		return 0, err
	}
	if err := s.packed(ctx, newest); err != nil {
		return 0, err
	}
	revision, ok, err := s.past.RevisionAt(ctx, moment.UnixNano())
	if err == nil && !ok {
		err = ErrCompacted
	}
	return min(revision, newest), err
}

// withPast returns the newest revision, if the store has a past.
func (s *State) withPast() (newest int64, err error) {
	if s.past == nil {
		return 0, ErrNoPast
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended {
		return 0, ErrClosed
	}
	return s.revision, nil
}

// packed has the past take all changes up to a revision.
func (s *State) packed(ctx context.Context, revision int64) (err error) {
	if s.past.Until() < revision {
		execution.Outside(ctx, func() { err = s.past.Pack(ctx) })
	}
	return err
}
