package store

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/invariants"
)

// owners is the index of the live versions by the UIDs of their owners. The state's mu guards it.
//
// The problem: garbage collection needs the dependents of every object that is deleted. The index has to be small for
// thousands of owners with one or two dependents each, quick to change for an owner with a hundred thousand, and
// readable without a lock during writes. Maps do not do: one from a UID to a set takes some hundred bytes for each
// owner, one to a sorted list moves the list for each write, and neither can be copied in constant time. So it is one
// copy-on-write tree of pairs (UID, key), in which the dependents of an owner are adjacent, ordered by key. A version
// without owners takes no space.
//
//	{u, k} ∈ pairs  ⇔  u ∈ live.get(k).Sidecar.Owners
//
// A UID that a version names more than once makes one pair.
type owners struct {
	pairs *btree.BTreeG[ownedBy]
}

// ownedBy is one pair: the live version of key has an owner with this UID.
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
	return p.key.before(q.key)
}

// owners returns the UIDs of the owners of a version; a nil version has none.
func (v *Version) owners() []string {
	if v == nil {
		return nil
	}
	return v.Sidecar.Owners
}

// check fails where the index is not that of the live versions. It takes time in the number of versions.
func (o *owners) check(live *versions) {
	pairs := 0
	live.scan(func(v *Version) bool {
		for i, uid := range v.Sidecar.Owners {
			if slices.Contains(v.Sidecar.Owners[:i], uid) {
				continue
			}
			pairs++
			if _, ok := o.pairs.Get(ownedBy{uid, v.Key}); !ok {
				invariants.Fail("store: the index of owners does not have %s as a dependent of %q", v.Key, uid)
			}
		}
		return true
	})
	if pairs != o.pairs.Len() {
		invariants.Fail("store: the index of owners has %d pairs, should have %d", o.pairs.Len(), pairs)
	}
}

// change follows a change of a key, whose version had the owners old and now has others. Owners that stay are removed
// and added again: that is linear in the number of owners, where comparing two unsorted lists takes the product of
// their lengths.
func (o *owners) change(k Key, old, now []string) {
	if slices.Equal(old, now) {
		return
	}
	for i, uid := range old {
		_, ok := o.pairs.Delete(ownedBy{uid, k})
		if invariants.Enabled && ok == slices.Contains(old[:i], uid) {
			invariants.Fail("store: the index of owners did not have %s as a dependent of %q", k, uid)
		}
	}
	for i, uid := range now {
		_, ok := o.pairs.Set(ownedBy{uid, k})
		if invariants.Enabled && ok != slices.Contains(now[:i], uid) {
			invariants.Fail("store: the index of owners had %s as a dependent of %q before it was one", k, uid)
		}
	}
}

// of yields the keys of the dependents of an owner. A pair with an empty key is the first one of its UID.
func (o *owners) of(uid string, yield func(Key) bool) {
	o.pairs.Ascend(ownedBy{uid: uid}, func(p ownedBy) bool { return p.uid == uid && yield(p.key) })
}

// Dependents yields the live versions that have the UID among their owners, ordered by key, until yield returns
// false. They are those of the newest revision at the time of the call. No lock is held during yield, so it may
// write. The cost depends on the number of dependents, and not on the number of versions.
func (s *State) Dependents(uid string, yield func(*Version) bool) {
	s.mu.RLock()
	any := false
	s.owners.of(uid, func(Key) bool { any = true; return false })
	s.mu.RUnlock()
	if !any { // most objects own no others; a copy of the tree would make the next writes copy parts of it
		return
	}

	// Snapshot and index are copied under one hold of the lock, so they are of the same revision.
	s.mu.Lock()
	sn, index := s.newest(), owners{s.owners.pairs.Copy()}
	s.mu.Unlock()
	index.of(uid, func(k Key) bool {
		v, ok := sn.Get(k)
		if invariants.Enabled && (!ok || !slices.Contains(v.Sidecar.Owners, uid)) {
			invariants.Fail("store: the index of owners has %s as a dependent of %q at %d", k, uid, sn.revision)
		}
		return !ok || yield(v)
	})
}
