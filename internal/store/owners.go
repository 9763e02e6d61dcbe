package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/invariants"
)

// owners is the index of the live versions by the UIDs of their owners. The state's mu guards it.
//
// It has to be small for thousands of owners with one or two dependents each, to be quick to change for an owner with a hundred
// thousand, and to be read without a lock while others write. A map from a UID to a set takes some hundred bytes for each owner,
// a map to a sorted list moves the list for each write, and neither can be copied at once. So it is one copy-on-write tree of
// pairs, in which the dependents of an owner stand side by side in the order of their keys. A version without owners has no
// part in it.
//
// Invariant, with owners[u] = {k : {u, k} ∈ pairs}:
//
//	owners[u] ∋ k ⇔ u ∈ live.get(k).Sidecar.Owners
//
// A UID that stands twice among the owners of a version makes one pair.
type owners struct {
	pairs *btree.BTreeG[ownedBy]
}

// ownedBy says that the version of key has an owner with this UID.
type ownedBy struct {
	uid string
	key Key
}

func newOwners() owners {
	return owners{btree.NewBTreeGOptions(ownedBy.before, btree.Options{Degree: degree, NoLocks: true})}
}

// before is the order of the pairs: by UID, then by key.
func (p ownedBy) before(q ownedBy) bool {
	if c := strings.Compare(p.uid, q.uid); c != 0 {
		return c < 0
	}
	if c := strings.Compare(p.key.Resource, q.key.Resource); c != 0 {
		return c < 0
	}
	return p.key.Name < q.key.Name
}

// owners returns the UIDs of the owners of a version; nil has none.
func (v *Version) owners() []string {
	if v == nil {
		return nil
	}
	return v.Sidecar.Owners
}

// change follows a change of a key, whose version had the owners old and has the owners now. It takes time in the number of
// both, not in their product.
func (o *owners) change(k Key, old, now []string) {
	if slices.Equal(old, now) {
		return
	}
	for i, uid := range old {
		_, was := o.pairs.Delete(ownedBy{uid, k})
		if invariants.Enabled && was == slices.Contains(old[:i], uid) {
			panic(fmt.Sprintf("store: the index of owners did not have %s as a dependent of %q", k, uid))
		}
	}
	for i, uid := range now {
		_, was := o.pairs.Set(ownedBy{uid, k})
		if invariants.Enabled && was != slices.Contains(now[:i], uid) {
			panic(fmt.Sprintf("store: the index of owners had %s as a dependent of %q before it was one", k, uid))
		}
	}
}

// of yields the keys of the dependents of an owner.
func (o *owners) of(uid string, yield func(Key) bool) {
	o.pairs.Ascend(ownedBy{uid: uid}, func(p ownedBy) bool { return p.uid == uid && yield(p.key) })
}

// Dependents yields the live versions that have the UID among their owners, in the order of their keys, until yield returns
// false. They are those of one moment, the newest. No lock is held, so yield may write. What it costs depends on how many they
// are, and not on how many versions there are.
func (s *State) Dependents(uid string, yield func(*Version) bool) {
	s.mu.RLock()
	any := false
	s.owners.of(uid, func(Key) bool { any = true; return false })
	s.mu.RUnlock()
	if !any { // most objects own nothing: asking for those makes no later write copy a part of a tree
		return
	}

	s.mu.Lock()
	sn, index := s.newest(), owners{s.owners.pairs.Copy()}
	s.mu.Unlock()
	index.of(uid, func(k Key) bool {
		v, ok := sn.Get(k)
		if invariants.Enabled && (!ok || !slices.Contains(v.Sidecar.Owners, uid)) {
			panic(fmt.Sprintf("store: the index of owners has %s as a dependent of %q at %d", k, uid, sn.revision))
		}
		return !ok || yield(v)
	})
}
