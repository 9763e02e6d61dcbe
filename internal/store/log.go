package store

import (
	"iter"
)

// A Commit is a range of revisions that become durable and visible together, or not at all: one for each of its records,
// or a single one where it has none.
//
//	Records[i].Revision = First() + i
//	First() ≤ Revision
//	First() of a commit = Revision + 1 of the one before it
//
// Each change has a revision of its own because a watch is cut at revisions: with one for all of them, a client that has
// seen the first of two objects of a collection, and goes on behind it, would never see the second. A record whose key had
// no version and has none, of a deletion that found nothing, is there for its revision only.
type Commit struct {
	Revision int64 // the last one
	Time     int64 // of sequencing, in nanoseconds since 1970; history is kept by it
	Records  []*Record
}

// First is the first revision of the range.
func (c *Commit) First() int64 { return firstOf(c.Revision, len(c.Records)) }

func firstOf(last int64, records int) int64 { return last - int64(max(1, records)) + 1 }

// FirstRevision is that of an empty store: the first commit is the one behind it. It is not 0, which has a meaning of its own
// in the API.
const FirstRevision = 1

// Checkpoint is the state as of one revision: a log that has one needs the commits up to there only as history.
type Checkpoint struct {
	Revision int64
	Window   Window
	// Versions yields the live versions in the order of resource and name. An error ends it.
	Versions iter.Seq2[*Version, error]
}

// EmptyCheckpoint is the checkpoint that every log begins with.
func EmptyCheckpoint() *Checkpoint {
	return &Checkpoint{
		Revision: FirstRevision, Window: Window{Horizon: FirstRevision}, Versions: func(func(*Version, error) bool) {},
	}
}

// Window is how far the history reaches back, and what that is measured by. It stands in a checkpoint, so that the history
// neither ends earlier nor grows older by a restart.
type Window struct {
	Horizon int64 // history begins behind this revision
	Bytes   int64 // of all changes ever counted
	Marks   []Mark
}

// Mark notes that Revision was the newest at some time, after so many bytes of changes. Marks are what the window is
// measured by: one more about every 1/64 of its age and 1/256 of its bytes.
type Mark struct {
	Revision int64
	Time     int64 // nanoseconds since 1970
	Bytes    int64
}

// Log is where commits become durable, and where history that memory no longer holds is read again. The store calls
// Append from one goroutine at a time, Compact from another one, and Replay from any number.
//
// What Checkpoint and Replay yield is lent: the commit or version and all that it points to, keys and bytes included, are
// valid until yield returns, and whoever keeps a part of it copies that. Their sidecars tell nothing but Expire and Form,
// which the bytes do not. So a log reads millions of records without an allocation for each, and what most readers are
// not interested in is never computed.
type Log interface {
	// Append makes commits durable, in their order, before it returns. Each of them is there afterwards as a whole
	// or not at all; when it fails the log takes no more of them, for what the disk holds by then is not known.
	Append(commits []*Commit) error

	// Checkpoint returns what Compact was given last. A log that begins with the first commit returns one of FirstRevision
	// with nothing in it.
	Checkpoint() (*Checkpoint, error)

	// Replay yields the commits that end behind the revision after, oldest first, and answers ErrCompacted when some of them
	// are no longer there. An error of yield ends it and is returned.
	Replay(after int64, yield func(*Commit) error) error

	// Compact lets go of what neither the state nor the history behind horizon needs. A checkpoint, when it is not nil, takes
	// the place of the commits up to there; an error that its Versions yield ends the attempt and is returned. A failed Compact
	// loses nothing and is tried again later.
	Compact(horizon int64, c *Checkpoint) error

	Close() error
}
