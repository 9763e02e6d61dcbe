package store

import (
	"iter"
)

// A Commit is a range of revisions that become durable and visible together, or not at all. Those of the embedded
// writer have one revision for each of their records, or a single one if they have none; those of a store whose
// transactions have one revision, such as etcd, have that in all records.
//
//	First() = Records[0].Revision ≤ Records[1].Revision ≤ … ≤ Revision
//	in a log:  Records[i].Revision = First() + i,  First() = Revision + 1 of the commit before
//
// One revision for the whole commit would not do for the embedded writer's watches: a client that has received the
// first of two changed objects of a collection, and is cut off, resumes after the revision of that object and would
// never receive the second. A deletion that found nothing to delete has a record without versions, which holds its
// revision.
type Commit struct {
	Revision int64 // the last one
	Time     int64 // of sequencing, in nanoseconds since 1970; history is kept by it
	Records  []*Record
	// Plane is whose objects the records change: the ID of a plane, "" for the first one. All other planes begin and
	// end with a commit of the first one.
	Plane  string
	Begins *Beginning // the plane that begins with this commit; nil: none does
	Ends   string     // the ID of the plane that ends with this commit; "": none does
	// By is who has made it (Attribution.Encode); none: nobody knows, or the store itself, as something has expired.
	By []byte
	// Seals are how the log encrypts the versions of each record; nil: it encrypts none. They are not stored.
	Seals []*Seal
}

// First is the first revision of the range.
func (c *Commit) First() int64 {
	switch {
	case len(c.Records) > 0:
		return c.Records[0].Revision
	case c.Begins != nil && len(c.Begins.Records) > 0:
		return c.Begins.Records[0].Revision
	}
	return c.Revision
}

// Beginning is how a plane begins: with all that another one has at that revision, and its own first changes.
type Beginning struct {
	Plane  string // its ID, which no other plane ever has
	Origin string // the ID of the plane with whose objects it begins; "": with none
	// Records are its first changes, with the last revisions of the commit. They have no old versions: what was before
	// belongs to Origin, and nobody can have watched.
	Records []*Record
	Seals   []*Seal // as Commit.Seals
}

// FirstRevision is that of an empty store; the first commit begins with the one after it. It is not 0, which has a
// special meaning in the API.
const FirstRevision = 1

// Checkpoint is the state as of one revision. A log that has one needs the commits up to it only as history.
type Checkpoint struct {
	Revision int64
	Window   Window
	// Versions yields the live versions of the first plane, ordered by resource and name. An error ends it.
	Versions iter.Seq2[*Version, error]
	// Layers yields what the other planes have, after Versions. Nil: there are no others.
	Layers iter.Seq2[*Layer, error]

	image *Image // has the same versions, which are then shared and not copied; nil: the checkpoint is of no image
}

// Layer is what a plane has, or what some have begun with, as the difference from another layer. It is lent, and its
// Versions are read before the next layer.
type Layer struct {
	// Number counts the layers of a checkpoint from 1. Origin is the number of an earlier one, of which this one is the
	// difference; 0: it is everything.
	Number, Origin int
	// Plane is the ID of the plane; "": no plane has it, but some layers are differences from it.
	Plane    string
	Revision int64 // of its last commit
	Begun    int64 // the revision with which the plane has begun
	Resting  int64 // see State.Rest
	Since    int64 // a resource without a collection has had no versions since this revision
	// Collections are those that have changed since the origin, with the revisions of their last changes.
	Collections []LayerCollection
	// Versions are those that the origin has not, ordered by resource and name. One without a sidecar says that there
	// is no version of its key, and the origin has one.
	Versions iter.Seq2[*Version, error]
}

// LayerCollection is a collection of a layer, and when it has changed.
type LayerCollection struct {
	Resource string
	Changed  int64
}

// EmptyCheckpoint is the checkpoint of an empty store.
func EmptyCheckpoint() *Checkpoint {
	return &Checkpoint{
		Revision: FirstRevision, Window: Window{Horizon: FirstRevision}, Versions: func(func(*Version, error) bool) {},
	}
}

// Window is the extent of the history, and the marks by which it is measured. It is stored in a checkpoint, so that a
// restart neither shortens nor lengthens the history.
//
//	Horizon < Marks[0].Revision < Marks[1].Revision < … ≤ revision of the checkpoint
type Window struct {
	Horizon int64 // the history begins after this revision
	Bytes   int64 // of all changes ever made
	Marks   []Mark
}

// Mark records that Revision was the newest at Time, when all changes so far had taken Bytes. There is about one mark
// for each 1/64 of the age of the window and each 1/256 of its bytes.
type Mark struct {
	Revision int64
	Time     int64 // nanoseconds since 1970
	Bytes    int64
}

// Log makes commits durable, and yields them again. The store calls Append from one goroutine at a time, Compact from
// another one, and Replay from any number.
//
// Checkpoint and Replay *lend* what they yield: the commit or version and all that it points to, keys and bytes
// included, is valid until yield returns; a caller that keeps a part of it has to copy that part. The sidecars have
// only what is not part of the bytes: Expire, Form and SealedBy, and Unreadable if a version did not decrypt, which is
// not lent. So a log
// reads millions of records without an allocation for each, and without computing sidecars that most readers do not
// use.
type Log interface {
	// Append makes commits durable, in their order, before it returns. After a crash each of them exists as a whole or
	// not at all. Once Append has failed, the log accepts no more commits, because the content of the disk is unknown.
	// Only after ErrNoRoom it does, and the next ones follow those that were appended before.
	Append(commits []*Commit) error

	// Checkpoint returns the newest checkpoint that Compact was given; EmptyCheckpoint if there was none.
	Checkpoint() (*Checkpoint, error)

	Replayer

	// Compact removes the data that neither the state nor the history after horizon needs. A checkpoint that is not nil
	// replaces the commits up to its revision; an error from its Versions ends the attempt and is returned. A failed
	// Compact loses nothing and is tried again later.
	Compact(horizon int64, c *Checkpoint) error

	Close() error
}

// Eraser is a Log with files, of which it can remove what it has of commits, whoever else may still want it. The store
// calls Erase as it calls Compact, and Roll at any time.
type Eraser interface {
	// Roll has later commits go to another file than those so far, and returns the revision of the newest one so far.
	Roll() (int64, error)
	// Erase is a Compact that has removed from the disk, durably, all commits up to a horizon that Roll has returned,
	// when it returns nil. The checkpoint has them.
	Erase(horizon int64, c *Checkpoint) error
	// Copies says, for people, where the commits are copied to; "": nowhere. What was copied stays there.
	Copies() string
}
