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

// PayloadRange is the range of revisions of the payload of a commit.
func PayloadRange(payload []byte) (first, last int64, err error) {
	p, err := parsePayload(payload)
	if err == nil && p.kind != payloadCommit {
		err = errPayload
	}
	return p.first(), p.revision, err
}

// Log is where commits become durable, and where history that memory no longer holds is read again. The store calls
// Append from one goroutine at a time, Compact from another one, and Replay from any number.
//
// A log sees commits as payloads: [Commit.AppendPayload] makes one, and the store alone reads it back. What turns
// bytes into other bytes on their way to the disk, such as encryption, belongs there, between payload and log.
type Log interface {
	// Append makes commits durable, in their order, before it returns. Each of them is there afterwards as a whole
	// or not at all; when it fails the log takes no more of them, for what the disk holds by then is not known.
	Append(commits []*Commit) error

	// Replay yields payloads, oldest first; they are valid until yield returns. An error of yield ends it and is
	// returned. With after ≥ 0 it yields the commits that end behind that revision, and answers ErrCompacted when some of
	// them are no longer there. With after < 0 it yields everything that Compact wrote last, and the commits behind it.
	Replay(after int64, yield func(payload []byte) error) error

	// Compact lets go of what neither the state nor the history behind horizon needs. Base, when not nil, yields the
	// state as of revision in payloads, to be kept and replayed in the place of the commits up to there; an error that it
	// yields ends the attempt and is returned. A failed Compact loses nothing and is tried again later.
	Compact(horizon, revision int64, base iter.Seq2[[]byte, error]) error

	Close() error
}
