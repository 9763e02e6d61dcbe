package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/invariants"
)

// degree of the B-trees: nodes of up to 63 entries. Smaller nodes copy less per write after a snapshot, larger ones
// find faster; between 16 and 64 a benchmark showed no difference.
const degree = 32

type (
	names       = btree.Map[string, *Version]
	collections = btree.Map[string, *collection]
)

// collection is the live versions of one resource. After a snapshot shares it, it is never changed again (versions).
type collection struct {
	resource string
	epoch    uint64 // see versions
	names    *names
	changed  int64 // revision of the last change, see Snapshot.CollectionRevision
}

// versions is the live versions of all resources.
//
// The problem: a list has to see one state while it is read page by page, and writes must not wait for it. Copying the
// map takes time and memory in the number of objects for each list, and a lock held for as long as a slow client reads
// stops all writes. So both levels, the tree of collections and the tree of names in each collection, are copy-on-write
// B-trees. freeze returns the whole state for the price of one new root. The first write to a collection after that
// copies the root of that collection, and every write copies at most the nodes on the path to its key.
//
// Whether a collection may be changed in place is decided by comparing epochs; freeze starts a new one. So freezing
// does not have to visit the collections:
//
// Example: at epoch 3 a list freezes the state, which begins epoch 4. The next write to Pods finds their collection at
// epoch 3, so it copies its root, sets that to epoch 4 and changes it; further writes to Pods change it in place. The
// collection of Nodes, which is not written to, stays shared at epoch 3 with every later snapshot.
//
//	collection.epoch ≤ versions.epoch
//	collection.epoch < versions.epoch  ⇒  a snapshot may share the collection, and it is never changed again
//	frozen ≠ nil  ⇒  nothing changed since freeze returned it, so the next snapshot is the same one
//	count = Σ len(collection.names),  bytes = Σ len(Data) over the same versions
//	v.Revision ≤ collection.changed ≤ revision of the state, for each v in collection.names
//	a resource without a collection has had no versions since the revision since
type versions struct {
	collections *collections
	epoch       uint64
	frozen      *collections
	since       int64 // revision of the checkpoint that the state was made of
	count       int
	bytes       int64
}

// newVersions is an empty state.
func newVersions() *versions {
	return &versions{collections: btree.NewMap[string, *collection](degree)}
}

// newNames is an empty collection.
func newNames() *names { return btree.NewMap[string, *Version](degree) }

// get returns the live version of a key, nil if there is none.
func (vs *versions) get(k Key) *Version {
	t, ok := vs.collections.Get(k.Resource)
	if !ok {
		return nil
	}
	v, _ := t.names.Get(k.Name)
	return v
}

// set makes v the live version of k, or removes k when v is nil. revision is that of the change.
func (vs *versions) set(k Key, v *Version, revision int64) {
	t := vs.writable(k.Resource)
	if invariants.Enabled && (t.epoch != vs.epoch || vs.frozen != nil || revision < t.changed) {
		invariants.Fail("store: %s is changed at %d: last changed at %d, epoch %d of %d",
			k, revision, t.changed, t.epoch, vs.epoch)
	}
	t.changed = max(t.changed, revision)
	var old *Version
	if v == nil {
		old, _ = t.names.Delete(k.Name)
	} else {
		old, _ = t.names.Set(k.Name, v)
	}
	if old != nil {
		vs.count--
		vs.bytes -= int64(old.Len())
	}
	if v != nil {
		vs.count++
		vs.bytes += int64(v.Len())
	}
}

// writable returns the collection of a resource, which no snapshot shares: if one does, a copy of it. A copy takes one
// new root; the nodes below are copied one by one, when they are written to.
func (vs *versions) writable(resource string) *collection {
	t, ok := vs.collections.Get(resource)
	switch {
	case !ok:
		resource = strings.Clone(resource)
		t = &collection{resource: resource, epoch: vs.epoch, names: newNames()}
	case t.epoch < vs.epoch:
		t = &collection{resource: t.resource, epoch: vs.epoch, names: t.names.Copy(), changed: t.changed}
	default:
		vs.frozen = nil
		return t
	}
	vs.frozen = nil
	vs.collections.Set(t.resource, t)
	return t
}

// forget removes the collections that are empty, and were so at the horizon: those of definitions that are gone. A
// resource without a collection has not changed after since, so since moves to their last change.
func (vs *versions) forget(horizon int64) {
	var empty []string
	vs.collections.Scan(func(resource string, t *collection) bool {
		if t.names.Len() == 0 && t.changed <= horizon {
			empty = append(empty, resource)
			vs.since = max(vs.since, t.changed)
		}
		return true
	})
	for _, resource := range empty {
		vs.frozen = nil
		vs.collections.Delete(resource)
	}
}

// freeze returns the versions as they are now. The result never changes. Between two changes it is the same one, so
// that snapshots of a state to which nobody writes cost nothing and start no epoch. The caller holds mu for writing.
func (vs *versions) freeze() *collections {
	if vs.frozen == nil {
		vs.frozen = vs.collections.Copy()
		vs.epoch++
	}
	return vs.frozen
}

// fork returns the same versions for another state, of which neither sees what the other one changes.
func (vs *versions) fork() *versions {
	shared := vs.freeze()
	return &versions{collections: shared.Copy(), epoch: vs.epoch, since: vs.since, count: vs.count, bytes: vs.bytes}
}

// scan yields all versions, ordered by resource and name.
func (vs *versions) scan(yield func(*Version) bool) { scan(vs.collections, yield) }

func scan(all *collections, yield func(*Version) bool) {
	all.Scan(func(_ string, t *collection) (more bool) {
		more = true
		t.names.Scan(func(_ string, v *Version) bool {
			more = yield(v)
			return more
		})
		return more
	})
}

// check fails where an invariant of versions does not hold. It takes time in the number of versions.
func (vs *versions) check(newest int64) {
	count, bytes := 0, int64(0)
	vs.collections.Scan(func(resource string, t *collection) bool {
		if t.resource != resource || t.epoch > vs.epoch || t.changed > newest {
			invariants.Fail("store: collection %q of %q: epoch %d of %d, changed at %d of %d",
				resource, t.resource, t.epoch, vs.epoch, t.changed, newest)
		}
		t.names.Scan(func(name string, v *Version) bool {
			if v.Key != (Key{resource, name}) || v.Revision > t.changed || v.Sidecar == nil {
				invariants.Fail("store: %s/%s is %s at %d, collection changed at %d",
					resource, name, v.Key, v.Revision, t.changed)
			}
			count++
			bytes += int64(v.Len())
			return true
		})
		return true
	})
	if count != vs.count || bytes != vs.bytes {
		invariants.Fail("store: %d versions of %d bytes, counted as %d of %d", count, bytes, vs.count, vs.bytes)
	}
}

// Snapshot is the whole state as of one revision. It never changes and needs no closing. It keeps in memory the
// versions that were overwritten or deleted since.
type Snapshot struct {
	revision    int64
	collections *collections
	since       int64    // see versions.since
	only        []string // the resources that a rebuilt snapshot holds; nil: all of them
}

// Revision is the one that the snapshot shows.
func (sn *Snapshot) Revision() int64 { return sn.revision }

// names returns the live versions of one resource, nil when there is none. It panics for a resource for which the
// snapshot was not rebuilt: an empty result would look like an empty collection.
func (sn *Snapshot) names(resource string) *names {
	if sn.only != nil && !slices.Contains(sn.only, resource) {
		panic(fmt.Sprintf("store: snapshot %d was rebuilt for %q, not for %q", sn.revision, sn.only, resource))
	}
	if t, ok := sn.collections.Get(resource); ok {
		return t.names
	}
	return nil
}

// Get returns the version of a key, if the snapshot has one.
func (sn *Snapshot) Get(k Key) (*Version, bool) {
	n := sn.names(k.Resource)
	if n == nil {
		return nil, false
	}
	return n.Get(k.Name)
}

// Ascend yields the versions of a resource whose name has the prefix and is not less than from, in byte order of the
// name, until yield returns false. It takes no lock, so yield may take any time, and may write.
func (sn *Snapshot) Ascend(resource, prefix, from string, yield func(*Version) bool) {
	n := sn.names(resource)
	if n == nil {
		return
	}
	n.Ascend(max(prefix, from), func(name string, v *Version) bool {
		return strings.HasPrefix(name, prefix) && yield(v)
	})
}

// Count returns how many versions of a resource have a name with the prefix. It takes the time of two calls of rank.
func (sn *Snapshot) Count(resource, prefix string) int {
	return sn.CountFrom(resource, prefix, "")
}

// CountFrom is Count restricted to names that are not less than from. Names with a prefix are adjacent, so they are
// counted by the ranks of both ends.
func (sn *Snapshot) CountFrom(resource, prefix, from string) int {
	n := sn.names(resource)
	if n == nil {
		return 0
	}
	end := n.Len()
	if prefix != "" {
		end = rank(n, func(name string) bool { return name > prefix && !strings.HasPrefix(name, prefix) })
	}
	low := max(prefix, from)
	return max(0, end-rank(n, func(name string) bool { return name >= low }))
}

// rank returns the index of the first name for which reached is true. It must be true for all names after that one.
// B-tree nodes count what is below them, so GetAt takes logarithmic time, and rank its square.
func rank(n *names, reached func(name string) bool) int {
	low, high := 0, n.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if name, _, _ := n.GetAt(mid); reached(name) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// Resources yields the resources that have live versions, in byte order. A collection whose objects were all deleted
// is left out.
func (sn *Snapshot) Resources(yield func(resource string) bool) {
	sn.collections.Scan(func(resource string, t *collection) bool {
		return t.names.Len() == 0 || yield(resource)
	})
}
