package store

import (
	"iter"
)

// A Commit is what became durable under one revision.
type Commit struct {
	Revision int64
	Time     int64 // of sequencing, in nanoseconds since 1970; history is kept by it
	Records  []*Record
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
	// returned. With after ≥ 0 it yields the commits behind that revision, and answers ErrCompacted when some of
	// them are no longer there. With after < 0 it yields everything that Compact wrote last, and the commits behind it.
	Replay(after int64, yield func(payload []byte) error) error

	// Compact lets go of what neither the state nor the history behind horizon needs. Base, when not nil, yields the
	// state as of revision in payloads, to be kept and replayed in the place of the commits up to there; an error that it
	// yields ends the attempt and is returned. A failed Compact loses nothing and is tried again later.
	Compact(horizon, revision int64, base iter.Seq2[[]byte, error]) error

	Close() error
}
