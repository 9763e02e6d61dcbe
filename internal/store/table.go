package store

// Table is a handle on the objects of one resource, for those who make something of all of them and want to know cheaply
// whether it is still true.
type Table struct {
	state    *State
	resource string
	feed     *feed
}

// Table returns the handle of a resource, which may be empty yet.
func (s *State) Table(resource string) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.history.feed(resource)
	if t, ok := s.live.tables.Get(resource); ok {
		f.changed.Store(t.changed)
	}
	return &Table{state: s, resource: f.resource, feed: f}
}

// Revision is that of the newest durable change in the table. It costs one atomic load. A snapshot taken afterwards shows
// the change.
func (t *Table) Revision() int64 { return t.feed.changed.Load() }

// Resource is whose objects the table holds.
func (t *Table) Resource() string { return t.resource }

// Snapshot returns the newest state.
func (t *Table) Snapshot() *Snapshot {
	sn, _ := t.state.Snapshot(0) // only older ones can be gone
	return sn
}

// Changes returns the records of the table behind the revision after and not behind until, oldest first; it is not ok when
// memory no longer holds all of them. It never waits and reads no log.
func (t *Table) Changes(after, until int64) (records []*Record, ok bool) {
	t.state.mu.RLock()
	defer t.state.mu.RUnlock()
	f := t.feed
	if after < f.floor {
		return nil, false
	}
	for i := firstAfter(&f.records, after); i < f.records.len(); i++ {
		r := f.records.at(i)
		if r.Revision > until {
			break
		}
		records = append(records, r)
	}
	return records, true
}

// TableRevision says since when the table of a resource has been as the snapshot shows it: 0 for one that nothing was ever
// in.
//
// Invariant: for every snapshot sn of a store, the table as of sn.TableRevision is the table as of sn.Revision. So two
// snapshots with the same TableRevision show the same objects. The converse holds but for rebuilt snapshots, which may
// tell a revision between the last change and their own.
func (sn *Snapshot) TableRevision(resource string) int64 {
	sn.names(resource) // panics where the snapshot was rebuilt for others
	t, ok := sn.tables.Get(resource)
	if !ok {
		return 0
	}
	return t.changed
}
