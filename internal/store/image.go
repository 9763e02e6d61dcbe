package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Image is the live versions of a state at one revision, with which other states can begin (Checkpoint). It never
// changes. Versions, and the nodes of trees, are shared by all states that have them.
//
// The problem: a test wants a store of its own with everything that an earlier one has set up, and there are
// thousands of tests. Reading the versions from a checkpoint parses and copies each of them. But versions are
// immutable, and the trees are copy-on-write already (versions), so a new state can begin with a copy of the roots:
// its cost is that of the collections, not of the objects.
//
// A copy of a tree is not only a read of it. It gives both trees a new identity, by which each of them recognizes the
// nodes that it may change in place. So an image has trees of its own, which no state ever reads or writes, and mu is
// held for each copy: states of one image may be made at the same time.
//
//	a node that two trees share is changed by neither
//	indexed, expiring = the versions in collections that an index has other than by their resource, or that expire
type Image struct {
	revision int64
	count    int
	bytes    int64
	indexed  []*Version // those with owners, and those that are undecrypted
	expiring []*Version

	mu          sync.Mutex // held to copy the trees
	collections []*collection
}

// Image returns the live versions as they are now. It takes time in the number of objects, though little for each of
// them: those that are indexed or expire are searched for once, so that no state has to.
func (s *State) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The state may no longer change its nodes in place, which freeze records.
	s.live.freeze()
	return newImage(s.revision, s.live)
}

// newImage makes an image of versions. The caller has a lock for their trees.
func newImage(revision int64, of *versions) *Image {
	img := &Image{revision: revision, count: of.count, bytes: of.bytes}
	of.collections.Scan(func(_ string, t *collection) bool {
		img.collections = append(img.collections, t.copy())
		t.names.Scan(func(_ string, v *Version) bool {
			if v.indexed() {
				img.indexed = append(img.indexed, v)
			}
			if v.expires() {
				img.expiring = append(img.expiring, v)
			}
			return true
		})
		return true
	})
	return img
}

// indexed says whether an index has the version by what its sidecar says.
func (v *Version) indexed() bool { return len(v.Sidecar.Owners) > 0 || v.Sidecar.Undecrypted }

// copy returns a collection with a tree of its own, which shares its nodes with that of t.
func (t *collection) copy() *collection {
	return &collection{resource: t.resource, names: t.names.Copy(), changed: t.changed}
}

// copies returns collections with trees that belong to the caller.
func (img *Image) copies() []*collection {
	img.mu.Lock()
	defer img.mu.Unlock()
	all := make([]*collection, len(img.collections))
	for i, t := range img.collections {
		all[i] = t.copy()
	}
	return all
}

// Revision is that of the state when the image was made.
func (img *Image) Revision() int64 { return img.revision }

// Versions yields the versions of a resource, in the order of their names.
func (img *Image) Versions(resource string) iter.Seq[*Version] {
	return func(yield func(*Version) bool) {
		for _, t := range img.copies() {
			if t.resource == resource {
				t.names.Scan(func(_ string, v *Version) bool { return yield(v) })
			}
		}
	}
}

// Before returns the image as it was before these records, which are all changes since a revision, oldest first.
func (img *Image) Before(records []*Record) *Image {
	live := newVersions()
	for _, t := range img.copies() {
		live.collections.Set(t.resource, t)
	}
	live.count, live.bytes = img.count, img.bytes
	revision := img.revision
	for _, r := range slices.Backward(records) {
		if !r.empty() {
			live.set(r.Key, r.Old, img.revision)
		}
		revision = r.Revision - 1
	}
	return newImage(revision, live)
}

// Checkpoint returns the image as the beginning of a log. Its revision is at least after, so that a store can begin
// again with an image, and no revision that clients have seen gets another meaning. There is no history: watches and
// snapshots from before the checkpoint are ErrCompacted.
func (img *Image) Checkpoint(after int64) *Checkpoint {
	revision := max(img.revision, after)
	return &Checkpoint{Revision: revision, Window: Window{Horizon: revision}, image: img,
		Versions: func(yield func(*Version, error) bool) {
			for _, t := range img.copies() {
				more := true
				t.names.Scan(func(_ string, v *Version) bool {
					more = yield(v, nil)
					return more
				})
				if !more {
					return
				}
			}
		}}
}

// loadImage makes the versions of an image those of a new state, with the indexes (State.index), and returns those
// that expire. Versions that no index has are not looked at. The log has no commits after an image.
func (s *State) loadImage(from *Checkpoint) (expire []*Version, err error) {
	img := from.image
	for _, t := range img.copies() {
		// The image has no deletions, and clients may have seen newer revisions than its own.
		t.changed = from.Revision
		s.live.collections.Set(t.resource, t)
	}
	s.live.count, s.live.bytes, s.live.since = img.count, img.bytes, from.Revision
	s.revision = from.Revision
	s.history.resume(from.Window)
	for _, v := range img.indexed {
		s.index(v.Key, nil, v, v.Revision)
	}
	if rules, ok := s.live.collections.Get(s.config.Rules); ok {
		rules.names.Scan(func(_ string, v *Version) bool {
			if !v.indexed() { // the others are indexed already
				s.index(v.Key, nil, v, v.Revision)
			}
			return true
		})
	}
	if s.log == nil {
		return img.expiring, nil
	}
	return img.expiring, s.log.Replay(context.Background(), from.Revision, func(c *Commit) error {
		return fmt.Errorf("store: commit %d to %d follows an image", c.First(), c.Revision)
	})
}
