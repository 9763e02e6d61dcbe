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
	// Seals are how the log encrypts the versions of each record; nil: it encrypts none. They are not stored.
	Seals []*Seal
}

// First is the first revision of the range.
func (c *Commit) First() int64 {
	if len(c.Records) == 0 {
		return c.Revision
	}
	return c.Records[0].Revision
}

func firstOf(last int64, records int) int64 { return last - int64(max(1, records)) + 1 }

// FirstRevision is that of an empty store; the first commit begins with the one after it. It is not 0, which has a
// special meaning in the API.
const FirstRevision = 1

// Checkpoint is the state as of one revision. A log that has one needs the commits up to it only as history.
type Checkpoint struct {
	Revision int64
	Window   Window
	// Versions yields the live versions, ordered by resource and name. An error ends it.
	Versions iter.Seq2[*Version, error]

	image *Image // has the same versions, which are then shared and not copied; nil: the checkpoint is of no image
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
// only what is not part of the bytes: Expire, Form and SealedBy, and Unreadable if a version did not decrypt. So a log
// reads millions of records without an allocation for each, and without computing sidecars that most readers do not
// use.
type Log interface {
	// Append makes commits durable, in their order, before it returns. After a crash each of them exists as a whole or not
	// at all. Once Append has failed, the log accepts no more commits, because the content of the disk is unknown. Only
	// after ErrNoRoom it does, and the next ones follow those that were appended before.
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
