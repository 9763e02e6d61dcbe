// Package store keeps every object of the server: multi-version state, the history of changes, and watches over it.
//
// It is two things. A State is what there is; it is fed commits in their order and decides nothing. A Writer decides what is
// written, and feeds the state. The embedded writer, the sequencer, makes commits durable in a Log; a writer on a store that other
// processes share feeds what they have committed, too. A Store is the two together.
//
// The package knows keys, bytes and revisions, and nothing of objects or HTTP. Its nouns:
//
//   - a Key names one object: its resource ("apps/deployments", core resources as "/pods") and its name within it
//     ("namespace/name", or "name" for cluster scope). Keys order by resource, then by the bytes of the name, as on etcd.
//   - a revision is the number of a change. One counter orders every change of every resource.
//   - a commit is a range of revisions, one for each of its changes, that become visible together.
//   - a Version is what one change stored under one key: immutable bytes and their Sidecar.
//   - a Record is one step of history: the old and the new version of one key.
//   - a Snapshot is the whole state as of one revision. A Checkpoint is one that a log keeps.
//   - a Cursor is a position in the history of one resource, or of all, which is all that a watch holds.
//   - the dependents of a UID are the live versions whose Sidecar names it among its Owners: an index finds them.
package store

import (
	"errors"
	"strings"
	"time"
)

// Key names one object.
type Key struct {
	Resource string // "GROUP/RESOURCE", with an empty group for core: "/pods", "apps/deployments"
	Name     string // "namespace/name" or "name"
}

// clone is the key in memory of its own.
func (k Key) clone() Key {
	return Key{Resource: strings.Clone(k.Resource), Name: strings.Clone(k.Name)}
}

func (k Key) String() string { return k.Resource + "/" + k.Name }

// Pair is one entry of a sorted list of names and values.
type Pair struct{ Name, Value string }

// Sidecar is what reads and watches need to know of stored bytes without parsing them. It is computed once, by the
// writer at commit, or by Config.Describe for versions that come from the log.
type Sidecar struct {
	Labels []Pair   // sorted by name
	Fields []Pair   // selectable fields other than metadata.name and metadata.namespace, sorted by name
	Owners []string // UIDs of ownerReferences
	UID    string
	// Deleting is set when the object carries a deletionTimestamp.
	Deleting bool
	// Expire is when the store removes the object by itself; zero means never (URI-10).
	Expire time.Time
	// Form stands for what decides the form of the bytes, and Selection for what decides Fields: hashes that whoever
	// computes the sidecar compares with those of today. 0: not known.
	Form, Selection uint64
	// Unreadable is the reason why the bytes do not make an object (DEL-6, DEL-7); nil for healthy ones.
	Unreadable error
	// Extra belongs to whoever computes the sidecar.
	Extra any
}

// Version is one stored state of one object. It is immutable.
type Version struct {
	Key      Key
	Revision int64 // of the change that wrote it
	Data     []byte
	Sidecar  *Sidecar
}

// Change is one write within a commit: new bytes, or a deletion when Data is nil.
type Change struct {
	Key     Key
	Data    []byte
	Sidecar *Sidecar // of Data; nil lets Config.Describe compute it
}

var (
	// ErrCompacted means that the revision asked for is no longer in the history.
	ErrCompacted = errors.New("store: revision is no longer kept")
	// ErrFuture means that the revision asked for has not happened yet.
	ErrFuture = errors.New("store: revision has not happened yet")
	// ErrClosed means that the store was closed, or refuses writes after a failed fsync until it is reopened.
	ErrClosed = errors.New("store: closed")
)
