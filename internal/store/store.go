// Package store keeps every object of the server: a multi-version state, the history of changes, and watches over
// them.
//
// It has two parts. A State is the data; commits are applied to it in order, and it makes no decisions. A Writer
// decides which writes are accepted, and applies them to the State. The embedded Writer, the sequencer, makes commits
// durable in a Log. A Writer on a store that several processes share also applies the commits of the other processes. A
// Store is a State with its Writer.
//
// The package deals with keys, bytes and revisions, and not with objects or HTTP. Its nouns:
//
//   - a Key names one object: its resource ("apps/deployments"; core resources as "/pods") and its name within the
//     resource ("namespace/name", or "name" for cluster scope). Keys are ordered by resource, then by the bytes of
//     the name, as on etcd.
//   - a revision is the number of a change. One counter numbers the changes of all resources.
//   - a commit is a range of revisions, one for each of its changes, that become durable and visible together.
//   - a Version is what one change stored under one key: immutable bytes, and their Sidecar.
//   - a Sidecar is the data that the store needs about the bytes, so that it does not parse them.
//   - a Record is one entry of the history: the old and the new version of one key.
//   - a feed is the history of one resource, or of all, together with the cursors that wait for its next record.
//   - a Snapshot is the state as of one revision. A Checkpoint is a snapshot that a log stores.
//   - a Cursor is a position in a feed. It is all that a watch holds.
//   - the horizon is the oldest revision that watches and snapshots may still start from. The window is the history
//     after it.
//   - the dependents of a UID are the live versions whose Sidecar has the UID among its Owners. An index finds them.
//
// The revisions of a store, at any time:
//
//	horizon ≤ state's revision ≤ newest durable revision ≤ newest revision given out
//
// # The way of a commit
//
// Commit makes new versions and their sidecars (sequencer.Commit). Under one lock it checks the preconditions and gets
// its revisions (sequence). The leader of its batch makes it durable (append). Then it is applied to the state under
// the state's lock (State.apply): the trees of live versions, the indexes of expiry and owners, and the history change
// together. At last the cursors that it concerns are woken, and Commit returns. So a client that receives the result of
// a commit, or its event from a watch, finds the commit in the state.
//
// # The way of a read
//
// Get takes one look-up under a read lock. A list takes a Snapshot, which shares the trees with the state and needs no
// lock afterwards. An older snapshot is computed by undoing the records since (rebuild). A watch is a Cursor: it reads
// records from memory, or from the log if memory does not reach back to it, and at the end of the history it waits in
// an index of prefixes, labels and fields (waiting).
//
// # What is kept
//
// Memory holds the live versions, and the newest records with their old versions up to Config.MemoryHistoryBytes. The
// log holds a checkpoint, the commits after it, and the commits of the window. No other data grows: history that leaves
// the window is dropped by all of them, and a reader from before it gets ErrCompacted.
//
// # Caveats
//
// A Snapshot needs no closing, but keeps its versions in memory. All returned values are shared and must not be
// changed.
package store

import (
	"errors"
	"strings"
	"time"
)

// Key names one object. Keys that the store returns share their strings: all objects of a collection the resource,
// and all versions of an object the name.
type Key struct {
	Resource string // "GROUP/RESOURCE", with an empty group for core: "/pods", "apps/deployments"
	Name     string // "namespace/name" or "name"
}

// clone returns a copy that shares no memory with k, which may point into a buffer.
func (k Key) clone() Key {
	return Key{Resource: strings.Clone(k.Resource), Name: strings.Clone(k.Name)}
}

func (k Key) String() string { return k.Resource + "/" + k.Name }

// Pair is a name with its value, such as a label.
type Pair struct{ Name, Value string }

// Sidecar is the data that reads and watches need about stored bytes without parsing them. It is computed once: by the
// caller of Commit, or by Config.Describe for versions that are read from the log or were written by another process.
type Sidecar struct {
	Labels []Pair   // sorted by name
	Fields []Pair   // selectable fields other than metadata.name and metadata.namespace, sorted by name
	Owners []string // UIDs of ownerReferences
	UID    string
	// Deleting is set when the object has a deletionTimestamp.
	Deleting bool
	// Undecrypted says that Data are the encrypted bytes of the version, as Sealing could not decrypt them. Unreadable
	// has the reason.
	Undecrypted bool
	// SealedBy identifies the key by which the log encrypts the version (Seal.ID); 0: it does not.
	SealedBy uint32
	// Expire is when the store deletes the object by itself; zero means never (URI-10).
	Expire time.Time
	// Form is a hash of what determines the form of the bytes (the stored version of the kind and its schema),
	// and Selection one of what determines Fields. Callers compare them with the current hashes, to recognize
	// outdated versions. 0: not known.
	Form, Selection uint64
	// Unreadable is the reason why the bytes cannot be decoded (DEL-6, DEL-7); nil for healthy objects.
	Unreadable error
	// Extra is for the code that computes the sidecar.
	Extra any
}

// Change is one write within a commit: new bytes, or a deletion when Data is nil. The store keeps all that it points
// to, so the caller must not change it afterwards.
type Change struct {
	Key     Key
	Data    []byte
	Sidecar *Sidecar // of Data; nil lets Config.Describe compute it
	// By says who makes the commit (Attribution.Encode). That of the first change counts; none: nobody says it.
	By []byte
	// Begin makes the commit the beginning of a plane, for which the object of this change stands; nil: none begins.
	Begin *Begin
	// Again says that the live version is written once more, and what is stored beside its bytes stays as it is: its
	// expiry, where that is not in the sidecar, but in a lease of etcd.
	Again bool
}

var (
	// ErrCompacted means that the history does not reach back to the requested revision any more.
	ErrCompacted = errors.New("store: revision is no longer kept")
	// ErrFuture means that the requested revision has not happened yet.
	ErrFuture = errors.New("store: revision has not happened yet")
	// ErrClosed means that the store was closed, or that it refuses writes after a failed sync until it is
	// reopened.
	ErrClosed = errors.New("store: closed")
	// ErrUnknown means that a write may have become durable, or not: the store does not know.
	ErrUnknown = errors.New("it is not known whether this was written")
	// ErrNoRoom means that a write was refused because the disk is full. Later ones may succeed.
	ErrNoRoom = errors.New("store: no room")
)
