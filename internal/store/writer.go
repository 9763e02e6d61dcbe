package store

import (
	"context"
	"errors"
	"fmt"
)

// Writer decides which writes are accepted, and applies them to the state. The embedded one (Open) orders commits
// itself and makes them durable in a Log. Another one may write to a store that several processes share; it applies the
// commits of all of them.
//
// The contract of every Writer:
//
//   - Commit returns a revision, or a conflict, only once the state has the version that caused it. So a caller that
//     reads again after a conflict finds another version than the one with which it failed, and a retry cannot fail
//     again for the same reason.
//   - Commits become visible in the order of their revisions, each as a whole.
type Writer interface {
	// Commit writes all changes, durably and at once, provided that all preconditions hold; otherwise it writes none and
	// returns a *ConflictError or a *LimitError. The revision is that of the last change; with n of them, change i has
	// revision-n+1+i. It returns ErrClosed when no more writes are accepted. After any other error the commit may turn out
	// to have been written, but never in part. Ctx bounds only the waiting: a commit that was begun goes on without its
	// caller.
	//
	// The store keeps the data of the changes; they must not be changed from here on.
	Commit(ctx context.Context, pre []Precondition, changes []Change) (revision int64, err error)

	// Fresh says whether the state's version of a key is current: no older than the newest version at the time of the
	// call. With sure set it makes it so, or returns an error. The zero Key means all keys, and the state's revision.
	Fresh(ctx context.Context, k Key, sure bool) (current bool, err error)

	// Healthy returns why no more writes are accepted; nil while they are.
	Healthy() error

	// Close ends the writer and its state: writes that were begun are finished, later ones refused, watches and
	// waiting reads ended.
	Close() error
}

// Store is a State with its Writer.
type Store struct {
	*State
	Writer
}

// Open replays a log and returns its state with the embedded writer. The first revision of a new, empty one is
// FirstRevision.
func Open(c Config) (*Store, error) {
	if c.Log == nil {
		return nil, errors.New("store: Config needs a Log")
	}
	from, err := c.Log.Checkpoint()
	if err != nil {
		return nil, fmt.Errorf("store: cannot be opened: %w", err)
	}
	state, err := NewState(c, from, c.Log)
	if err != nil {
		return nil, fmt.Errorf("store: cannot be opened: %w", err)
	}
	return &Store{State: state, Writer: newSequencer(state)}, nil
}

// Live returns the live version of a key, nil if there is none, and whether it is known to be current: no older than
// the newest one at the time of the call. If other processes write to the store, that takes a request to them. So a
// caller begins with sure unset; if it would then refuse the request, or write nothing, it reads again with sure set.
// Before a commit there is no need to: its preconditions are checked against the current version.
func (s *Store) Live(ctx context.Context, k Key, sure bool) (v *Version, current bool, err error) {
	// The embedded writer is always current. It is not called: passing a key through an interface costs every read an
	// allocation.
	if _, alone := s.Writer.(*sequencer); alone {
		v, _ = s.Get(k)
		return v, true, nil
	}
	if current, err = s.Fresh(ctx, k.clone(), sure); err != nil {
		return nil, false, err
	}
	v, _ = s.Get(k) // after Fresh, so that it is at least as new as Fresh has said
	return v, current, nil
}
