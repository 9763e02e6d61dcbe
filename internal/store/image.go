package store

import (
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
type Image struct {
	revision int64

	mu sync.Mutex // held to copy the trees
	content
}

// Image returns the live versions as they are now. It copies roots, and takes the same time for any number of objects.
func (s *State) Image() *Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Image{revision: s.revision, content: s.fork()}
}

// copy returns the content with trees that belong to the caller.
func (img *Image) copy() content {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.fork()
}

// Revision is that of the state when the image was made.
func (img *Image) Revision() int64 { return img.revision }

// Versions yields the versions of a resource, in the order of their names.
func (img *Image) Versions(resource string) iter.Seq[*Version] {
	return func(yield func(*Version) bool) {
		c := img.copy()
		if t, ok := c.live.collections.Get(resource); ok {
			t.names.Scan(func(_ string, v *Version) bool { return yield(v) })
		}
	}
}

// All yields all versions, ordered by resource and name.
func (img *Image) All(yield func(*Version) bool) {
	c := img.copy()
	c.live.scan(yield)
}

// Before returns the image as it was before these records, which are all changes since a revision, oldest first.
func (img *Image) Before(records []*Record) *Image {
	c, revision := img.copy(), img.revision
	for _, r := range slices.Backward(records) {
		if !r.empty() {
			c.set(r.Key, r.New, r.Old, img.revision)
		}
		revision = r.Revision - 1
	}
	return &Image{revision: revision, content: c}
}

// Checkpoint returns the image as the beginning of a log. Its revision is at least after, so that a store can begin
// again with an image, and no revision that clients have seen gets another meaning. There is no history: watches and
// snapshots from before the checkpoint are ErrCompacted.
func (img *Image) Checkpoint(after int64) *Checkpoint {
	revision := max(img.revision, after)
	return &Checkpoint{Revision: revision, Window: Window{Horizon: revision}, image: img,
		Versions: func(yield func(*Version, error) bool) {
			img.All(func(v *Version) bool { return yield(v, nil) })
		}}
}

// begin is the content of a state that begins with the image at a revision. The log has no commits after it.
func (img *Image) begin(revision int64) content {
	c := img.copy()
	// The image has no deletions, and clients may have seen newer revisions than its own.
	var all []*collection
	c.live.collections.Scan(func(_ string, t *collection) bool {
		all = append(all, t)
		return true
	})
	for _, t := range all {
		c.live.collections.Set(t.resource, &collection{
			resource: t.resource, epoch: c.live.epoch, names: t.names.Copy(), changed: revision})
	}
	c.live.since, c.live.frozen = revision, nil
	return c
}
