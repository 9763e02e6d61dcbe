package store

import (
	"strings"

	"github.com/tidwall/btree"

	"plinth/internal/invariants"
)

// content is the live versions of a state with the indexes over them: all that another state which begins with them has
// to have.
//
//	an index = the sum of index over the changes that led to live
//
// All of it are copy-on-write trees, so a fork copies roots and takes the same time for any number of versions.
type content struct {
	live     *versions
	owners   owners
	expiries expiries
	// undecrypted are the live versions that could not be decrypted. A version may come so at any time: at the start,
	// by a change of another process while a plugin is away, by what is read again after changes were missed. Whoever
	// brings it has no way to say later that it can be read, so the index notes it for each change of a key.
	undecrypted *keys
}

func newContent() content {
	return content{live: newVersions(), owners: newOwners(), expiries: newExpiries(), undecrypted: newKeys()}
}

// fork returns the same content for another state. Neither of the two sees what the other one changes. The caller may
// change c: a fork begins a new epoch.
func (c *content) fork() content {
	return content{live: c.live.fork(), owners: owners{c.owners.pairs.Copy()},
		expiries: expiries{c.expiries.entries.Copy()}, undecrypted: c.undecrypted.Copy()}
}

// set makes now the live version of a key, whose live version was old; nil: there is none.
func (c *content) set(k Key, old, now *Version, revision int64) {
	c.live.set(k, now, revision)
	c.index(k, old, now)
}

// index changes the indexes with one change of a key. It is called for every change: of a client, of a controller, by
// expiry, of another process, and those loaded at the start. So a new index is added here alone.
func (c *content) index(k Key, old, now *Version) {
	c.owners.change(k, old.owners(), now.owners())
	c.expiries.change(k, old, now)
	if now != nil && now.Sidecar.Undecrypted {
		c.undecrypted.Set(now.Key)
	} else if c.undecrypted.Len() > 0 {
		c.undecrypted.Delete(k)
	}
}

// check fails where an index is not that of the live versions. It takes time in the number of versions.
func (c *content) check(newest int64) {
	c.live.check(newest)
	c.owners.check(c.live)
	c.expiries.check(c.live)
	checkUndecrypted(c.undecrypted, c.live)
}

// keys is a set of keys, in the order of resource and name.
type keys = btree.BTreeG[Key]

func newKeys() *keys {
	return btree.NewBTreeGOptions(Key.before, btree.Options{Degree: degree, NoLocks: true})
}

// before is the order of keys: by resource, then by name.
func (k Key) before(l Key) bool {
	if c := strings.Compare(k.Resource, l.Resource); c != 0 {
		return c < 0
	}
	return k.Name < l.Name
}

// checkUndecrypted fails where the index is not that of the live versions. It takes time in the number of versions.
func checkUndecrypted(index *keys, live *versions) {
	n := 0
	live.scan(func(v *Version) bool {
		if v.Sidecar.Undecrypted {
			n++
			if _, ok := index.Get(v.Key); !ok {
				invariants.Fail("store: %s is undecrypted, and is not looked for", v.Key)
			}
		}
		return true
	})
	if n != index.Len() {
		invariants.Fail("store: %d versions are undecrypted, %d are looked for", n, index.Len())
	}
}
