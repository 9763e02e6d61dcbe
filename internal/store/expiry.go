package store

import (
	"time"

	"github.com/tidwall/btree"

	"plinth/internal/invariants"
)

// expiries is the index of the live versions that expire, by time. The embedded writer deletes by it: where other
// processes write, expiry is theirs, too.
//
// The problem: an entry for each write, whose outdated ones are skipped when they are reached, grows with the number of
// writes, and Events are written much more often than they expire. So each change removes the entry of the old version,
// which the old version itself names. It is a tree, and no heap, so that another state can begin with it (content).
//
//	{t, k} ∈ entries  ⇔  live.get(k).Sidecar.Expire = t ≠ 0
//
// A due object is not deleted yet: the sequencer deletes with the revision as a precondition, so an object that is
// written again in between stays.
type expiries struct {
	entries *btree.BTreeG[expiring]
}

// expiring says that the live version of a key expires at a time.
type expiring struct {
	at  int64 // nanoseconds since 1970: times that have a monotonic clock, too, have no order
	key Key
}

func newExpiries() expiries {
	return expiries{btree.NewBTreeGOptions(expiring.before, btree.Options{Degree: degree, NoLocks: true})}
}

// before is the order of the entries: by time, then by key.
func (e expiring) before(f expiring) bool {
	if e.at != f.at {
		return e.at < f.at
	}
	return e.key.before(f.key)
}

// expires says whether a version expires; a nil version does not.
func (v *Version) expires() bool { return v != nil && !v.Sidecar.Expire.IsZero() }

// change follows one change of a key.
func (e *expiries) change(k Key, old, now *Version) {
	if old.expires() {
		if _, ok := e.entries.Delete(expiring{old.Sidecar.Expire.UnixNano(), k}); invariants.Enabled && !ok {
			invariants.Fail("store: %s was not planned to expire at %s", k, old.Sidecar.Expire)
		}
	}
	if now.expires() {
		e.entries.Set(expiring{now.Sidecar.Expire.UnixNano(), now.Key})
	}
}

// check fails where the index is not that of the live versions. It takes time in the number of versions.
func (e *expiries) check(live *versions) {
	n := 0
	live.scan(func(v *Version) bool {
		if v.expires() {
			n++
			if _, ok := e.entries.Get(expiring{v.Sidecar.Expire.UnixNano(), v.Key}); !ok {
				invariants.Fail("store: %s expires at %s, and is not planned to", v.Key, v.Sidecar.Expire)
			}
		}
		return true
	})
	if n != e.entries.Len() {
		invariants.Fail("store: %d versions expire, and %d are planned to", n, e.entries.Len())
	}
}

// due returns up to n keys of versions that have expired by now, those that expired first before the others. The
// index is not changed; the deletions, once durable, remove the entries.
func (e *expiries) due(now time.Time, n int) (due []Key) {
	e.entries.Scan(func(x expiring) bool {
		if len(due) == n || x.at > now.UnixNano() {
			return false
		}
		due = append(due, x.key)
		return true
	})
	return due
}

// next is when the first version expires; zero when none does.
func (e *expiries) next() time.Time {
	if first, ok := e.entries.Min(); ok {
		return time.Unix(0, first.at)
	}
	return time.Time{}
}
