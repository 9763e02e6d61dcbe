package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// degree of the B-trees: nodes of up to 63 entries. Smaller nodes copy less per write after a snapshot, larger ones
// find faster; between 16 and 64 neither showed in a benchmark.
const degree = 32

type (
	names       = btree.Map[string, *Version]
	collections = btree.Map[string, *collection]
)

// collection is the live versions of one resource. Once its epoch is behind that of versions, a snapshot shares it and it never
// changes again.
type collection struct {
	resource string
	epoch    uint64
	names    *names
	changed  int64 // see Snapshot.CollectionRevision
}

// versions is the live versions of every resource, in two levels of copy-on-write trees: freezing all of it costs one
// copy of the root, and the first write to a collection behind that costs one copy of that collection's root.
//
// Invariant: collection.epoch < versions.epoch ⇔ some snapshot shares the collection.
type versions struct {
	collections *collections
	epoch       uint64
	frozen      *collections // what freeze gave last, nil once something changed since
	count       int          // of live versions
	bytes       int64        // of their Data
}

func newVersions() *versions {
	return &versions{collections: btree.NewMap[string, *collection](degree)}
}

func newNames() *names { return btree.NewMap[string, *Version](degree) }

func (vs *versions) get(k Key) *Version {
	t, ok := vs.collections.Get(k.Resource)
	if !ok {
		return nil
	}
	v, _ := t.names.Get(k.Name)
	return v
}

// set makes v the live version of k, or removes k when v is nil. Revision is the one of the change.
func (vs *versions) set(k Key, v *Version, revision int64) {
	t := vs.writable(k.Resource)
	t.changed = max(t.changed, revision)
	var old *Version
	if v == nil {
		old, _ = t.names.Delete(k.Name)
	} else {
		old, _ = t.names.Set(k.Name, v)
	}
	if old != nil {
		vs.count--
		vs.bytes -= int64(len(old.Data))
	}
	if v != nil {
		vs.count++
		vs.bytes += int64(len(v.Data))
	}
}

// writable returns the collection of a resource with nobody else looking at it.
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

// freeze returns the versions as they are now, to be read by anybody for as long as they like.
func (vs *versions) freeze() *collections {
	if vs.frozen == nil {
		vs.frozen = vs.collections.Copy()
		vs.epoch++
	}
	return vs.frozen
}

// Snapshot is the whole state as of one revision. It never changes, costs nothing to keep but the versions that it
// alone still knows, and needs no closing.
type Snapshot struct {
	revision    int64
	collections *collections
	only        []string // resources that a rebuilt snapshot holds; nil: all of them
}

// Revision is the one that the snapshot shows.
func (sn *Snapshot) Revision() int64 { return sn.revision }

// names returns the live versions of one resource, nil when there is none.
func (sn *Snapshot) names(resource string) *names {
	if sn.only != nil && !slices.Contains(sn.only, resource) {
		panic(fmt.Sprintf("store: snapshot %d was rebuilt for %q, not for %q", sn.revision, sn.only, resource))
	}
	if t, ok := sn.collections.Get(resource); ok {
		return t.names
	}
	return nil
}

// Get returns the version that was live.
func (sn *Snapshot) Get(k Key) (*Version, bool) {
	n := sn.names(k.Resource)
	if n == nil {
		return nil, false
	}
	return n.Get(k.Name)
}

// Ascend yields the versions of a resource whose name has the prefix and is not below from, in byte order of the name,
// until yield returns false.
func (sn *Snapshot) Ascend(resource, prefix, from string, yield func(*Version) bool) {
	n := sn.names(resource)
	if n == nil {
		return
	}
	n.Ascend(max(prefix, from), func(name string, v *Version) bool {
		return strings.HasPrefix(name, prefix) && yield(v)
	})
}

// Count returns how many versions of a resource have a name with the prefix. It takes time in the logarithm of their
// number.
func (sn *Snapshot) Count(resource, prefix string) int {
	return sn.CountFrom(resource, prefix, "")
}

// CountFrom is Count of those whose name is not below from.
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

// rank returns the index of the first name for which is holds, given that it holds for all behind it.
func rank(n *names, is func(name string) bool) int {
	low, high := 0, n.Len()
	for low < high {
		mid := int(uint(low+high) / 2)
		if name, _, _ := n.GetAt(mid); is(name) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// Resources yields the resources that have live versions, in byte order.
func (sn *Snapshot) Resources(yield func(resource string) bool) {
	sn.collections.Scan(func(resource string, t *collection) bool {
		return t.names.Len() == 0 || yield(resource)
	})
}
