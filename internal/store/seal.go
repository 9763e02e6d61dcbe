package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Sealing encrypts what a log keeps of the versions of some resources (encryption at rest). In memory versions are as
// they are without it.
//
// The problem: a key may be gone for a while, or for ever. A write that needs it has to fail before it is sequenced,
// and alone: an error while the log appends would be that of every commit of the batch, and of all later ones. So
// what can fail, and may take time, is apart from the encryption itself. The writer gets a Seal before it sequences a
// commit, and the log only uses it.
//
//	a version in the log is encrypted  ⇔  its commit had a Seal for it
//
// A version that the log cannot decrypt is unreadable, and keeps its encrypted bytes (Sidecar.Undecrypted): a
// checkpoint writes them as they are, and they can be read again when the key is back.
//
// An encrypted version is bound to its key, and to where it is in the log: its bytes do not decrypt in the place of
// another one. Keys are the same in all planes, so a place is named by a scope, too:
//
//	""                of the first plane: a value is bound as it would be in etcd
//	planes/UID        of the commits of another plane, and of its layer in a checkpoint (ScopeOf)
//	origins/REVISION  of a layer with what several planes have begun with (Layer.Scope)
//
// The plane that has written a version would be one scope for all of its life. But a version that several planes have
// is there once in memory and in a checkpoint, where nothing names its writer, which may have ended; and to keep it
// with each version would cost more than it is good for. So the scope is that of the place, which the reader knows
// without trusting the version: a checkpoint encrypts all versions anew, and each for its layer. Those that did not
// decrypt are an exception: they are bound to where they were written, and say so (UndecryptedError).
type Sealing interface {
	// Seal returns how versions of a resource are encrypted now; nil: they are not. It may call another process, for as
	// long as ctx lasts.
	Seal(ctx context.Context, resource string) (*Seal, error)
	// Open decrypts bytes that Seal.Append has made for a key in a scope. by is the ID of the Seal. It may call another
	// process, for as long as ctx lasts; the caller holds no lock meanwhile.
	Open(ctx context.Context, scope string, k Key, sealed []byte) (plain []byte, by uint32, err error)
	// Current returns the ID of the Seal that Seal would return, 0 for nil. known is false if it is not known: then
	// Seal fails.
	Current(resource string) (by uint32, known bool)
}

// Seal is how versions are encrypted at one moment.
type Seal struct {
	ID uint32 // of the key that encrypts, see Sidecar.SealedBy; never 0
	// Append appends the encrypted bytes of a version of k in a scope. It cannot fail.
	Append func(dst []byte, scope string, k Key, plain []byte) []byte
	// Withhold says that there is no key: the log must not contain the version. It is set for old versions alone.
	Withhold bool
}

// ScopeOf is the scope of what is encrypted for a plane (Sealing).
func ScopeOf(plane string) string {
	if plane == "" {
		return ""
	}
	return "planes/" + plane
}

// Scope is that of the versions in the layer (Sealing). No two origins are of one revision: it is that of the last
// commit of a plane.
func (l *Layer) Scope() string {
	if l.Plane != "" {
		return ScopeOf(l.Plane)
	}
	return "origins/" + strconv.FormatInt(l.Revision, 10)
}

// UndecryptedError is why a version that is in another scope than that of the first plane did not decrypt
// (Sidecar.Unreadable). Scope is what its bytes are bound to, wherever they are.
type UndecryptedError struct {
	Scope string
	Err   error
}

func (e *UndecryptedError) Error() string { return e.Err.Error() }

func (e *UndecryptedError) Unwrap() error { return e.Err }

// Scope is what the bytes of a version that did not decrypt are bound to.
func (s *Sidecar) Scope() string {
	if bound := (*UndecryptedError)(nil); errors.As(s.Unreadable, &bound) {
		return bound.Scope
	}
	return ""
}

// Stale says whether a version is stored in another way than a write of it would be now: encrypted with another key, or
// not encrypted. A write that changes nothing of the object is carried out nevertheless.
func (s *State) Stale(v *Version) bool {
	if s.config.Sealing == nil {
		return false
	}
	by, known := s.config.Sealing.Current(v.Key.Resource)
	return !known || by != v.Sidecar.SealedBy
}

// Reseal has the embedded writer write a checkpoint, if a version of any plane is stale: it encrypts all of them with
// the current keys, so that earlier ones are needed for the history alone. Writes of clients do not reach every
// version: claims are no objects. It returns before the checkpoint is written.
func (s *Store) Reseal() {
	w, embedded := s.Writer.(*writer)
	if !embedded || !w.anyStale() {
		return
	}
	w.seq.Lock()
	w.resealing = true
	w.seq.Unlock()
	notify(w.grown)
}

// anyStale says whether a live version of any plane is stale, other than those that did not decrypt. A collection that
// several planes have is looked at once.
func (w *sequencer) anyStale() (found bool) {
	if w.config.Sealing == nil {
		return false
	}
	seen := map[*collection]bool{}
	for _, of := range w.all() {
		s := of.state
		s.mu.Lock()
		collections := s.live.freeze()
		s.mu.Unlock()
		collections.Scan(func(_ string, t *collection) bool {
			if seen[t] {
				return true
			}
			seen[t] = true
			t.names.Scan(func(_ string, v *Version) bool {
				found = !v.Sidecar.Undecrypted && s.Stale(v)
				return !found
			})
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// all are the writers of all planes.
func (w *sequencer) all() []*writer {
	w.seq.Lock()
	defer w.seq.Unlock()
	return slices.Collect(maps.Values(w.writers))
}

// seals returns the Seals of changes; nil if none of them is encrypted. It sets the ID in the sidecars of the versions,
// which belong to the commit alone yet.
//
// A deletion needs the key as well, for the old version, but does not fail without: the log then has only that there
// was a version.
func (w *writer) seals(ctx context.Context, changes []Change, versions []*Version) ([]*Seal, error) {
	sealing := w.config.Sealing
	if sealing == nil {
		return nil, nil
	}
	var seals []*Seal
	var current *Seal // of the resource
	var err error
	for i, ch := range changes {
		if i == 0 || ch.Key.Resource != changes[i-1].Key.Resource { // else the same Seal is used once more
			current, err = sealing.Seal(ctx, ch.Key.Resource)
		}
		seal := current
		switch {
		case err != nil && versions[i] != nil:
			return nil, &SealError{ch.Key, err}
		case err != nil:
			seal = &Seal{Withhold: true}
		case seal == nil:
			continue
		}
		if seals == nil {
			seals = make([]*Seal, len(changes))
		}
		if seals[i] = seal; versions[i] != nil {
			versions[i].Sidecar.SealedBy = seal.ID
		}
	}
	return seals, nil
}

// SealError is the error of a commit that was not written because a version could not be encrypted.
type SealError struct {
	Key Key
	Err error
}

func (e *SealError) Error() string { return fmt.Sprintf("%s cannot be encrypted: %v", e.Key, e.Err) }

func (e *SealError) Unwrap() error { return e.Err }

// Undecrypted receives when a live version that could not be decrypted has been added, to the state, or, for the first
// plane, with another plane. It is for the goroutine that calls Recover.
func (s *State) Undecrypted() <-chan struct{} { return s.unread }

// unreadKeys are the keys of the live versions that are undecrypted, in order.
func (s *State) unreadKeys() []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.undecrypted.Items()
}

func (s *State) unreadCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.undecrypted.Len()
}

// recoverAtOnce is how many versions Recover writes in one commit.
const recoverAtOnce = 64

// Recover writes the versions again that could not be decrypted when they came into the state, and can be now: because
// a plugin answers, or the configuration has another key. They get new revisions, as all that was computed without them
// (views, indexes, what controllers have seen) follows the history. left is how many are still unreadable.
//
// That of the first plane does so in all planes of the log, whether somebody has opened them or not: each gets a
// version of its own, also of one that several have. It is called again from time to time, and when Undecrypted
// receives, by one goroutine. It costs next to nothing when all versions are readable. The error is the first one.
func (s *Store) Recover(ctx context.Context) (recovered, left int, err error) {
	recovered, left, err = s.recoverOwn(ctx)
	w, embedded := s.Writer.(*writer)
	if !embedded || s.plane != "" {
		return recovered, left, err
	}
	for _, of := range w.all() {
		if of == w || of.state.unreadCount() == 0 {
			continue
		}
		more, still, failed := storeOf(of).recoverOwn(ctx)
		if errors.Is(failed, ErrClosed) && w.Healthy() == nil { // the plane has ended meanwhile
			continue
		}
		recovered, left, err = recovered+more, left+still, cmp.Or(err, failed)
	}
	return recovered, left, err
}

// recoverOwn is Recover for the versions of one plane.
func (s *Store) recoverOwn(ctx context.Context) (recovered, left int, err error) {
	atOnce := recoverAtOnce
	if s.Others != nil { // it may not commit two of them together
		atOnce = 1
	}
	for part := range slices.Chunk(s.unreadKeys(), atOnce) {
		n, failed := s.recover(ctx, part)
		recovered, err = recovered+n, cmp.Or(err, failed)
		// What cannot be encrypted now holds up nothing that another key encrypts.
		if failed != nil && !errors.As(failed, new(*SealError)) {
			break
		}
	}
	return recovered, s.unreadCount(), err
}

// recover is Recover for some keys, in one commit; after a conflict, in one for each of them.
func (s *Store) recover(ctx context.Context, keys []Key) (recovered int, err error) {
	var pre []Precondition
	var changes []Change
	for _, k := range keys {
		v, found := s.Get(k)
		if !found || !v.Sidecar.Undecrypted {
			continue
		}
		plain, _, err := s.config.Sealing.Open(ctx, v.Sidecar.Scope(), k, v.Data())
		if err != nil {
			continue
		}
		// Form and expiry are those that it was written with.
		current := &Sidecar{Form: v.Sidecar.Form}
		if s.config.Opened != nil {
			if plain, current, err = s.config.Opened(k, plain); err != nil {
				continue
			}
		}
		current.Expire = v.Sidecar.Expire
		sc := s.DescribeStored(k, plain, current)
		pre = append(pre, At(v))
		changes = append(changes, Change{Key: k, Data: plain, Sidecar: sc, Again: true})
	}
	if len(changes) == 0 {
		return 0, ctx.Err()
	}
	_, err = s.Commit(ctx, pre, changes)
	conflict := (*ConflictError)(nil)
	switch {
	case err == nil:
		return len(changes), nil
	case errors.As(err, &conflict) && len(changes) > 1: // one was removed
		for _, ch := range changes {
			n, err := s.recover(ctx, []Key{ch.Key})
			if recovered += n; err != nil {
				return recovered, err
			}
		}
		return recovered, nil
	case errors.As(err, &conflict):
		return 0, nil // it was written, or removed; if not, it is still in the index
	}
	return 0, err
}
