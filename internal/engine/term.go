package engine

import (
	"context"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// terms is the store resource of the keys of terms. Only the revision of such a key counts, not its bytes.
const terms = "plinth/terms"

// Term is the time for which one of several servers has a task: it runs the controllers, for one.
//
// The problem: the servers elect the one that has the task by a Lease, and the one whose Lease has expired stops. But a
// server that was frozen for a minute does not know that it has expired, and a write that it was about to make goes on
// where it was. Its deadline stops it soon, and not before that write.
//
// So each take-over writes a key in the same commit in which it writes the Lease (Request.Term), and whatever the task
// writes is committed on the condition that the key still has that revision (Under). The Lease itself cannot be the
// condition, as it is written again every two seconds.
//
//	a write under a term is committed  ⇒  no later term had begun
type Term struct {
	Name     string // of the task
	revision int64  // of the key; 0: the term has not begun
}

// Begun says whether the term has begun. It may be over.
func (t *Term) Begun() bool { return t != nil && t.revision > 0 }

func (t *Term) key() store.Key { return store.Key{Resource: terms, Name: t.Name} }

// begin is the change with which the term begins, and its precondition.
func (t *Term) begin(ctx context.Context, s *store.Store) (store.Precondition, store.Change, error) {
	t.revision = 0
	change := store.Change{Key: t.key(), Data: []byte{'0'}, Sidecar: &store.Sidecar{}}
	live, _, err := s.Live(ctx, change.Key, false)
	if err != nil || live == nil {
		return store.Absent(change.Key), change, err
	}
	return store.At(live), change, nil
}

type termKey struct{}

// Under has all that is written with the context be a part of a term: once it is over, writes are refused with 503.
func Under(ctx context.Context, t *Term) context.Context { return context.WithValue(ctx, termKey{}, t) }

// OfTerm are the preconditions of a commit under the term of a context; none if it has none. The engine adds them
// itself.
func OfTerm(ctx context.Context) []store.Precondition {
	if t, _ := ctx.Value(termKey{}).(*Term); t != nil {
		return []store.Precondition{{Key: t.key(), Revision: t.revision}}
	}
	return nil
}

// ofTerm is OfTerm for what is committed to the engine's store. The key of a term is in the first one alone.
func (e *Engine) ofTerm(ctx context.Context) []store.Precondition {
	if e.first != nil {
		return nil
	}
	return OfTerm(ctx)
}

// errTermOver refuses a write under a term that is over.
var errTermOver error = apierr.NewUnavailable("another server has taken over what this one was doing")
