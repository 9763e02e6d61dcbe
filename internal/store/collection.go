package store

// Collection is a handle on the objects of one resource. It shows cheaply whether a result that was computed from all
// of them is still up to date (package view): the newest revision is in an atomic variable, so a reader that computed
// its result at that revision takes no lock.
//
//	f.changed = revision of the newest change in the collection, once a Collection or a record of it exists
//
// The revision is stored under mu with the record (history.add) before Store.Commit returns, so every reader that
// begins after a write was acknowledged sees it.
type Collection struct {
	state    *State
	resource string
	feed     *feed
}

// Collection returns the handle of a resource, which need not have objects.
func (s *State) Collection(resource string) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.history.feed(resource)
	f.pinned = true
	// Deletions before the checkpoint are unknown, so a collection without objects has changed at its revision.
	f.changed.Store(s.live.since)
	if t, ok := s.live.collections.Get(resource); ok {
		f.changed.Store(t.changed)
	}
	return &Collection{state: s, resource: f.resource, feed: f}
}

// Revision is that of the newest durable change in the collection. It costs one atomic load. A snapshot taken
// afterwards shows the change.
func (t *Collection) Revision() int64 { return t.feed.changed.Load() }

// Resource is the resource whose objects the collection holds.
func (t *Collection) Resource() string { return t.resource }

// Snapshot returns the newest state.
func (t *Collection) Snapshot() *Snapshot {
	sn, _ := t.state.Snapshot(0) // only a request for an older one can fail
	return sn
}

// Changes returns the records of the collection with after < Revision ≤ until, oldest first. ok is false when memory
// no longer holds all of them; the caller then computes its value from a snapshot. It never blocks and does not read
// the log.
func (t *Collection) Changes(after, until int64) (records []*Record, ok bool) {
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

// CollectionRevision is a revision since which the collection of a resource has not changed in the snapshot. For every
// snapshot sn of a store:
//
//	the collection as of sn.CollectionRevision(r) = the collection as of sn.Revision()
//
// So two snapshots with the same CollectionRevision show the same objects. The converse does not hold: in a rebuilt
// snapshot it may lie between the last change and the snapshot's own revision, and after a restart it is not less
// than the revision of the checkpoint, which has no deletions.
func (sn *Snapshot) CollectionRevision(resource string) int64 {
	sn.names(resource) // panics where the snapshot was rebuilt for other resources
	t, ok := sn.collections.Get(resource)
	if !ok {
		return sn.since
	}
	return t.changed
}
