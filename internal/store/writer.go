package store

import (
	"context"
	"errors"
	"fmt"
)

// Writer decides which writes are accepted, and applies them to the state. The embedded one (Open) orders commits
// itself and makes them durable in a Log. Another one may write to a store that several processes share; it applies the
// commits of all of them. Expiry is the writer's, too: it deletes the versions whose Sidecar.Expire has passed, by
// commits like any other.
//
// The contract of every Writer:
//
//   - Commit returns a revision, or a conflict, only once the state has the version that caused it. So a caller that
//     reads again after a conflict finds another version than the one with which it failed, and a retry cannot fail
//     again for the same reason.
//   - Commits become visible in the order of their revisions, each as a whole.
type Writer interface {
	// Commit writes all changes, durably and at once, provided that all preconditions hold; otherwise it writes none
	// and returns a *ConflictError or an *OverError. It returns ErrClosed when no more writes are accepted. After any
	// other error, ErrUnknown among them, the commit may turn out to have been written, but never in part.
	//
	// A commit whose ctx has ended before it has its place in the order of commits is not written, and the error is
	// that of ctx: a request does not write after its deadline. From then on ctx bounds only the waiting: the commit
	// goes on without its caller.
	//
	// The store keeps the data of the changes; they must not be changed from here on.
	Commit(ctx context.Context, pre []Precondition, changes []Change) (Revisions, error)

	// Healthy returns why no more writes are accepted; nil while they are.
	Healthy() error

	// Close ends the writer and its state: writes that were begun are finished, later ones refused, watches and
	// waiting reads ended.
	Close() error
}

// Revisions are those that a commit gave to its changes. A writer gives each change a revision of its own, or the same
// one to all of them, as a transaction of etcd does. Two numbers represent both without an allocation for each commit:
//
//	revision of change i = First + i × Step
//
// A commit without changes has the revision First.
type Revisions struct {
	First int64 // of the first change
	Step  int64 // 1, or 0: all changes have the same revision
}

// Of is the revision of change i.
func (r Revisions) Of(i int) int64 { return r.First + int64(i)*r.Step }

// Others are the other processes that write to a store. A state lags behind their commits.
type Others interface {
	// Fresh says whether the state's version of a key is current: no older than the newest version at the time of the
	// call. With sure set it makes it so, or returns an error. The zero Key means all keys, and the state's revision.
	Fresh(ctx context.Context, k Key, sure bool) (current bool, err error)

	// Atomic says whether changes of both keys may be in one commit. Where all changes of a commit have one revision,
	// two keys of one resource may not: a client that has received the change of one of them, and resumes its watch
	// from that revision, would never receive the other.
	Atomic(a, b Key) bool
}

// Store is a State with its Writer.
type Store struct {
	*State
	Writer
	Others Others // nil: no other process writes, so the state is always current
}

// Open replays a log and returns the state of the first plane with the embedded writer. The first revision of a new,
// empty one is FirstRevision. Planes are the stores of all others.
func Open(c Config) (*Store, error) {
	if c.Log == nil {
		return nil, errors.New("store: Config needs a Log")
	}
	from, err := c.Log.Checkpoint()
	if err != nil {
		return nil, fmt.Errorf("store: cannot be opened: %w", err)
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	l := newLoader(&c, c.Log)
	if err := l.load(from); err != nil {
		return nil, fmt.Errorf("store: cannot be opened: %w", err)
	}
	return storeOf(newSequencer(l).writers[""]), nil
}

func storeOf(w *writer) *Store { return &Store{State: w.state, Writer: w} }

// Live returns the live version of a key, nil if there is none, and whether it is known to be current: no older than
// the newest one at the time of the call. If other processes write to the store, that takes a request to them. So a
// caller begins with sure unset; if it would then refuse the request, or write nothing, it reads again with sure set.
// Before a commit there is no need to: its preconditions are checked against the current version.
func (s *Store) Live(ctx context.Context, k Key, sure bool) (v *Version, current bool, err error) {
	if current, err = s.Fresh(ctx, k, sure); err != nil {
		return nil, false, err
	}
	v, _ = s.Get(k) // after Fresh, so that it is at least as new as Fresh has said
	return v, current, nil
}

// Atomic is Others.Atomic, and true without other processes. Where it is false, the caller makes several commits, in an
// order that leaves nothing wrong behind if it ends in between.
func (s *Store) Atomic(a, b Key) bool { return s.Others == nil || s.Others.Atomic(a, b) }

// Fresh is Others.Fresh, and true without other processes.
func (s *Store) Fresh(ctx context.Context, k Key, sure bool) (current bool, err error) {
	if s.Others == nil {
		return true, nil
	}
	// Without the copy every caller's key would be on the heap, as an argument of an interface's method.
	return s.Others.Fresh(ctx, k.clone(), sure)
}
