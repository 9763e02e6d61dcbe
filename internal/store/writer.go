package store

import (
	"context"
	"errors"
	"fmt"
)

// Writer decides what becomes of writes, and feeds the state. The embedded one (Open) puts them in order itself and makes them
// durable in a Log; another one may ask a store that other processes write to as well, whose commits it feeds, too.
//
// The contract of all of them:
//
//   - What Commit returns, a revision or a conflict, it returns only once the state includes what that tells of. So who reads again
//     after a conflict finds another version than the one that lost, and a retry never spins on an old state.
//   - Commits become visible in the order of their revisions, each as a whole.
type Writer interface {
	// Commit writes all changes, durably, provided that all preconditions hold: else it returns a *ConflictError or a *LimitError
	// and has written nothing. The revision is that of the last change; with n of them, change i has revision-n+1+i. Nobody sees
	// some of them without the others. It returns ErrClosed when no more writes are taken, and another error where this one was
	// lost; whether it will be there in the end is open then, but it never is in part. Ctx bounds only the waiting: a commit
	// abandoned by it still happens.
	//
	// The data of the changes are kept; nobody may change them from here on.
	Commit(ctx context.Context, pre []Precondition, changes []Change) (revision int64, err error)

	// Fresh says whether what the state has of a key is current: no older than what was the newest version when Fresh was called.
	// With sure set it returns only once that is so, or with an error. The zero Key stands for all there are, and the state's
	// revision then is no older than the newest one.
	Fresh(ctx context.Context, k Key, sure bool) (current bool, err error)

	// Healthy says why no more writes are taken; nil as long as they are.
	Healthy() error

	// Close ends the writer and its state: writes on their way are finished, later ones refused, watches and waiting reads ended.
	Close() error
}

// Store is a state and who writes to it.
type Store struct {
	*State
	Writer
}

// Open replays a log and returns its state with the embedded writer. The first revision of a new one is FirstRevision, with nothing
// in it.
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

// Live returns the live version of a key, nil if there is none, and whether it is known to be current: the newest one that there was
// when Live was called, or a newer one. Where another process may write, finding out takes a while: so a verb begins with what is
// known here, and what it would refuse then, or leave as it is, it decides again with sure set. What it commits needs no such care,
// for the commit's preconditions are judged by what is current.
func (s *Store) Live(ctx context.Context, k Key, sure bool) (v *Version, current bool, err error) {
	// The embedded writer knows all there is. It is not asked: a key that goes through an interface costs every read an allocation.
	if _, alone := s.Writer.(*sequencer); alone {
		v, _ = s.Get(k)
		return v, true, nil
	}
	if current, err = s.Fresh(ctx, k.clone(), sure); err != nil {
		return nil, false, err
	}
	v, _ = s.Get(k) // after Fresh, so that it is as new as that said
	return v, current, nil
}
