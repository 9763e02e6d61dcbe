// Package view compiles all objects of one collection of the store into a value that requests need: the served types
// of all definitions, the rules of all roles.
//
// A View is as new as the store: a request that reads it compares revisions, and looks at the changes only if they
// differ. It has no goroutine and no callback, and need not be started or stopped. So a write takes effect for the next
// request, on every replica that has seen its revision.
//
// Nouns:
//
//   - a collection is the objects of one stored resource.
//   - a Change is the new version of one object of it, or its deletion.
//   - to compile is to make the value of a view from an earlier value and the changes since; the first time, all
//     objects are changes.
//   - Parsed is the content of one version of an object, parsed on first use.
//   - an unreadable object is one whose bytes cannot be decoded (store.Sidecar.Unreadable): its key is gone, or a
//     plugin does not answer. It may be a rule that refuses, so a value without it is not the whole answer, and Now
//     says so.
//
// Caveats. A value is shared by all requests and must not be changed. The request that finds a view outdated compiles
// it on its own goroutine, and others wait: Compile must be fast, and leave expensive work to Parsed.
package view

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"plinth/internal/store"
)

// Change is a change of one object of a collection. Version is its new version; nil: it was deleted.
type Change struct {
	Name    string
	Version *store.Version
}

// Compile makes the value of a view. before is the value of an earlier revision, which it must not change. changes
// has the last change of each object since then, in no order. For the first value, before is the zero value of T and
// changes has all objects of the collection.
//
// Compile must depend on its arguments alone, and the value must not depend on the steps in which it was made:
//
//	compile(compile(zero, a), b) = compile(zero, a and then b)
//
// It cannot fail. Of an unreadable object it gets the version, of which it can use the name; Now returns the error. T
// has to record other objects that cannot be used, beside those that can.
type Compile[T any] func(before T, changes iter.Seq[Change]) T

// View is a value compiled from a collection. Its methods may be called concurrently.
//
// The problem: a request has to see every write that was acknowledged before it arrived, and almost no write changes
// the collection. Compiling when the store changes either happens on another goroutine, which may be late, or makes
// each writer wait for all compilations. So the reader checks instead, by comparing one number:
//
//	value(r) = the result of Compile for the collection as of revision r
//	newest.value = value(newest.revision),  and newest.revision never decreases
//	newest.revision = collection.Revision()  ⇒  newest.value is the current value
//
// The first reader that finds the revisions to differ compiles. Readers that arrive meanwhile wait for it, and take the
// newest value then, which may be newer than they need. So the values form one chain: each is compiled from its
// predecessor, and a Compile that keeps unchanged parts (the types of a definition) keeps their identity. A value that
// is compiled separately, for a reader that has seen an older revision, would break the chain.
type View[T any] struct {
	collection *store.Collection
	compile    Compile[T]

	newest atomic.Pointer[compiled[T]]
	mu     sync.Mutex // held to replace newest
}

// compiled is a value and its revision, in the sense of store.Snapshot.CollectionRevision.
type compiled[T any] struct {
	revision   int64
	value      T
	unreadable *UnreadableError // nil: there are none
}

// UnreadableError says that objects of a collection are unreadable. It is not changed.
type UnreadableError struct {
	Resource string           // of the collection, as in store.Key.Resource
	Why      map[string]error // by the name of the object, as in store.Key.Name
}

// Error names the first object and how many others there are, but not why they are unreadable: users may see the text
// who may not see the objects.
func (e *UnreadableError) Error() string {
	resource := strings.TrimPrefix(e.Resource, "/")
	if group, name, ok := strings.Cut(resource, "/"); ok {
		resource = name + "." + group
	}
	text := fmt.Sprintf("%s %q cannot be read", resource, slices.Min(slices.Collect(maps.Keys(e.Why))))
	if n := len(e.Why) - 1; n > 0 {
		text += fmt.Sprintf(" (nor can %d more)", n)
	}
	return text
}

// with returns the error after changes; e itself if they concern no unreadable object.
func (e *UnreadableError) with(resource string, changes iter.Seq[Change]) *UnreadableError {
	var next map[string]error
	for change := range changes {
		var why error
		if change.Version != nil {
			why = change.Version.Sidecar.Unreadable
		}
		before := false
		if e != nil {
			_, before = e.Why[change.Name]
		}
		if why == nil && !before {
			continue
		}
		if next == nil {
			if next = map[string]error{}; e != nil {
				maps.Copy(next, e.Why)
			}
		}
		if delete(next, change.Name); why != nil {
			next[change.Name] = why
		}
	}
	switch {
	case next == nil:
		return e
	case len(next) == 0:
		return nil
	}
	return &UnreadableError{resource, next}
}

// New makes a view of a collection. It compiles nothing before the first request.
func New[T any](collection *store.Collection, compile Compile[T]) *View[T] {
	return &View[T]{collection: collection, compile: compile}
}

// Now returns the current value: it includes every change that was durable before the call. If objects of the
// collection are unreadable, the value is without them, and the error is an *UnreadableError. A caller that goes on
// with the value must do no harm by that: what refuses or confines is among the objects that are missing.
func (v *View[T]) Now() (T, error) {
	c := v.newest.Load()
	if c == nil || c.revision < v.collection.Revision() {
		c = v.renew(v.collection.Snapshot())
	}
	if c.unreadable != nil {
		return c.value, c.unreadable
	}
	return c.value, nil
}

// renew returns a value that is at least as new as a snapshot. It compiles that of the snapshot and makes it the newest
// one, unless another reader has done so meanwhile.
func (v *View[T]) renew(sn *store.Snapshot) *compiled[T] {
	revision := sn.CollectionRevision(v.collection.Resource())
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.newest.Load()
	if before != nil && before.revision >= revision {
		return before
	}
	changes, ok := v.since(before, revision)
	if !ok {
		before, changes = &compiled[T]{}, v.whole(sn)
	}
	c := &compiled[T]{
		revision: revision, value: v.compile(before.value, changes),
		unreadable: before.unreadable.with(v.collection.Resource(), changes),
	}
	v.newest.Store(c)
	return c
}

// whole returns all objects of a snapshot as changes.
func (v *View[T]) whole(sn *store.Snapshot) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		sn.Ascend(v.collection.Resource(), "", "", func(version *store.Version) bool {
			return yield(Change{version.Key.Name, version})
		})
	}
}

// since returns the last change of each object between a value and a revision. ok is false if the history in memory
// does not have all of them; the value is then compiled from all objects.
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

// Parsed is the content of one version of an object, or the error of parsing it. It is parsed once, on first use, so
// that a restart with thousands of definitions compiles none of them. As versions are immutable, values of a view can
// share it.
type Parsed[P any] struct {
	Version *store.Version
	parse   func(*store.Version) (P, error)
	once    sync.Once
	value   P
	err     error
}

// Parse returns a Parsed that calls parse on first use.
func Parse[P any](version *store.Version, parse func(*store.Version) (P, error)) *Parsed[P] {
	return &Parsed[P]{Version: version, parse: parse}
}

// Get returns the content, or the error. An unreadable version is not parsed.
func (p *Parsed[P]) Get() (P, error) {
	p.once.Do(func() {
		if p.err = p.Version.Sidecar.Unreadable; p.err == nil {
			p.value, p.err = p.parse(p.Version)
		}
		p.parse = nil
	})
	return p.value, p.err
}
