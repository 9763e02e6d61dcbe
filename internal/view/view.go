// Package view compiles the objects of a collection of the store into what requests need of all of them together: the
// served types of all definitions, the rules of all roles.
//
// A View is as new as the store: asking for it compares revisions, and looks at what has changed where they differ.
// There is no goroutine, no callback and nothing to start or stop. So what a write has changed holds for the next
// request.
//
// Nouns. A collection is the objects of one stored resource. A Change is what became of one of them. To compile is to
// make the value of a view from the value before and the changes since; the first time, all objects are changes.
// Parsed is what one version of an object says, found out when somebody asks.
package view

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"plinth/internal/store"
)

// Change is what became of one object of a collection: its new version, or nil when it is gone.
type Change struct {
	Name    string
	Version *store.Version
}

// Compile makes the value of a view. Before is the value of an earlier state, which it must not change, and changes
// what happened since, each object at most once; for a collection that nothing is known of yet, before is the zero
// value of T and changes are all objects of the collection. The order of changes means nothing.
//
// Compile must depend on its arguments alone, and give equal values however the way to a state is cut into steps:
//
//	compile(compile(zero, a), b) = compile(zero, a followed by b)
//
// It cannot fail: an object that cannot be used is for T to remember, beside the others.
type Compile[T any] func(before T, changes iter.Seq[Change]) T

// View is a value compiled from a collection. Its methods may be called at the same time.
//
// The problem it solves: a request has to see every write that was answered before it came, and almost none of them
// concerns the collection. The obvious way, to compile when the store changes, needs a goroutine that is always a
// little behind, or makes writers wait for everybody's compilations. Here the reader compares one number instead:
//
//	compiled.revision == collection's last revision  ⇒  compiled.value is the value of the collection as it is
//
// and the first one to find that it is not so compiles, while those who come meanwhile wait for it: each of them
// needs the same value.
type View[T any] struct {
	collection *store.Collection
	compile    Compile[T]

	newest atomic.Pointer[compiled[T]]

	mu    sync.Mutex     // held by who replaces newest, and while
	known []*compiled[T] // is used: those that were newest last, for snapshots that are not the newest any more

	old   sync.Mutex   // held by who compiles for an old snapshot, which keeps nobody from compiling for a new one, and while
	other *compiled[T] // is used: the last one so compiled
}

// keptValues is how many earlier values are kept. Requests under way hold snapshots that are a few commits old at
// most.
const keptValues = 4

// compiled is the value of the collection as of a revision, see store.Snapshot.CollectionRevision.
type compiled[T any] struct {
	revision int64
	value    T
}

// New makes a view of a collection. Nothing is compiled before it is asked for.
func New[T any](collection *store.Collection, compile Compile[T]) *View[T] {
	return &View[T]{collection: collection, compile: compile}
}

// Now is the value of the collection as it is: every change that was durable before the call is in it.
func (v *View[T]) Now() T {
	if c := v.newest.Load(); c != nil && c.revision >= v.collection.Revision() {
		return c.value
	}
	return v.At(v.collection.Snapshot())
}

// At is the value of the collection as a snapshot shows it.
func (v *View[T]) At(sn *store.Snapshot) T {
	c := v.newest.Load()
	if c != nil && c.revision == v.collection.Revision() && c.revision <= sn.Revision() {
		return c.value // the collection's last change of all is in the snapshot
	}
	revision := sn.CollectionRevision(v.collection.Resource())
	if c == nil || c.revision < revision {
		c = v.renew(sn, revision)
	}
	if c.revision != revision {
		c = v.earlier(sn, revision)
	}
	return c.value
}

// renew compiles the value of a snapshot that is newer than any before it, unless somebody else has meanwhile
// compiled that of a newer one.
func (v *View[T]) renew(sn *store.Snapshot, revision int64) *compiled[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.newest.Load()
	if before != nil && before.revision >= revision {
		return before
	}
	c := &compiled[T]{revision: revision}
	if changes, ok := v.since(before, revision); ok {
		c.value = v.compile(before.value, changes)
	} else {
		c.value = v.whole(sn)
	}
	if before != nil {
		if len(v.known) == keptValues {
			v.known = slices.Delete(v.known, 0, 1)
		}
		v.known = append(v.known, before)
	}
	v.newest.Store(c)
	return c
}

// earlier is the value of a snapshot that is older than the newest value.
func (v *View[T]) earlier(sn *store.Snapshot, revision int64) *compiled[T] {
	if c := v.recent(revision); c != nil {
		return c
	}
	v.old.Lock()
	defer v.old.Unlock()
	if v.other == nil || v.other.revision != revision {
		v.other = &compiled[T]{revision: revision, value: v.whole(sn)}
	}
	return v.other
}

// recent is the value of a revision that was newest not long ago, or nil.
func (v *View[T]) recent(revision int64) *compiled[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.known {
		if c.revision == revision {
			return c
		}
	}
	return nil
}

// whole compiles all objects that a snapshot shows.
func (v *View[T]) whole(sn *store.Snapshot) T {
	var none T
	return v.compile(none, func(yield func(Change) bool) {
		sn.Ascend(v.collection.Resource(), "", "", func(version *store.Version) bool {
			return yield(Change{version.Key.Name, version})
		})
	})
}

// since is the last change of each object between a value and a revision, if the history in memory still has them
// all.
func (v *View[T]) since(before *compiled[T], revision int64) (iter.Seq[Change], bool) {
	if before == nil {
		return nil, false
	}
	records, ok := v.collection.Changes(before.revision, revision)
	if !ok {
		return nil, false
	}
	last := make(map[string]*store.Version, len(records))
	for _, r := range records {
		last[r.Key.Name] = r.New
	}
	return func(yield func(Change) bool) {
		for name, version := range last {
			if !yield(Change{name, version}) {
				return
			}
		}
	}, true
}

// Parsed is what one version of an object says, or why it says nothing. It is found out when somebody asks, once;
// kept in the value of a view, it is as old as the version.
type Parsed[P any] struct {
	Version *store.Version
	parse   func(*store.Version) (P, error)
	once    sync.Once
	value   P
	err     error
}

// Parse puts the parsing of a version off until somebody asks.
func Parse[P any](version *store.Version, parse func(*store.Version) (P, error)) *Parsed[P] {
	return &Parsed[P]{Version: version, parse: parse}
}

// Get is what the version says.
func (p *Parsed[P]) Get() (P, error) {
	p.once.Do(func() {
		if p.err = p.Version.Sidecar.Unreadable; p.err == nil {
			p.value, p.err = p.parse(p.Version)
		}
		p.parse = nil
	})
	return p.value, p.err
}
