// Package filelog is the embedded durable log of a store: a directory of files that holds the commits of the recent
// history, and the state that they led to.
//
//   - A segment holds commits in their order and is named after the revision before its first one. Only the newest
//     one is written to.
//   - A checkpoint holds the state as of one revision, and replaces all commits up to there except as history.
//   - A frame is one entry of a file: a commit, a part of a checkpoint, or what holds the file together.
//   - The manifest says of which files the log consists and up to which revision it is synced. It is written after
//     every sync, and is not synced itself then.
//   - The synced offset of a frame is that up to which its segment was synced when the frame was written. It is there
//     for losses of power, which may take the newest entry of the manifest.
//
// So a frame that does not read back is either the unfinished end of a write that nobody was told of, and is dropped,
// or damage, and Open and Replay say in which file; and a file that is missing is named.
//
// The frames are records of Pebble's log format, and files are reached through Pebble's vfs, so that tests run on
// file systems that lose and refuse writes. docs/formats.md has the format, docs/decisions/0001-embedded-log.md the
// reasons.
//
// A directory belongs to one process at a time. After a failed write or sync the log takes no more commits until it
// is opened again: what the disk holds by then is not known before it is read.
package filelog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
)

// Options are for tests, and for whoever wants smaller or larger files. The zero value is fine.
type Options struct {
	FS vfs.FS // the operating system's by default
	// SegmentBytes is the size at which a new segment is begun: 8 MiB. History is let go of by whole segments.
	SegmentBytes int64
	// NoSync leaves it to the operating system when files reach the disk. What was acknowledged survives the end
	// of the process, but not a loss of power, which may leave a log that does not open any more.
	NoSync bool
	Logger *slog.Logger
}

// Log is an open directory.
type Log struct {
	fs           vfs.FS
	dir          string
	logger       *slog.Logger
	segmentBytes int64
	lock         io.Closer

	// Append and Close take appending: it guards the active segment's file.
	appending sync.Mutex
	active    *writer
	buffer    []byte
	failed    error // why there are no more commits

	manifest *manifest // has a lock of its own

	mu         sync.Mutex
	segments   []*segment // oldest first, the last one is active; each begins where the one before it ends
	checkpoint int64      // revision of the checkpoint, 0 without one
}

// segment is one file of commits.
//
//	revisions of its commits: after < revision ≤ end
type segment struct {
	after, previous int64 // previous: after of the segment before it, -1 for the very first one
	end             int64
	size            int64 // up to where it may be read
	index           sparseIndex
}

// DamageError says which file of the log does not hold what was written to it.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// MissingError says which file of the log is not there.
type MissingError struct{ File, Reason string }

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: %s", e.File, e.Reason) }

// ErrLocked means that another process, or this one, has the directory open.
var ErrLocked = errors.New("in use")

// Open opens a directory, and makes it when it is not there. What a crash left behind is put in order; commits that
// were acknowledged are there, or Open returns an error that names the damaged file.
func Open(dir string, o Options) (*Log, error) {
	if o.FS == nil {
		o.FS = private{vfs.Default}
	}
	if o.NoSync {
		o.FS = unsynced{o.FS}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 8 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{fs: o.FS, dir: dir, logger: o.Logger, segmentBytes: o.SegmentBytes}
	if err := l.open(); err != nil {
		l.closeFiles() //nolint:errcheck // the first error is the one to tell
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return l, nil
}

// Append makes commits durable.
func (l *Log) Append(commits []*store.Commit) error {
	l.appending.Lock()
	defer l.appending.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if err := l.append(commits); err != nil {
		l.failed = fmt.Errorf("data directory %s: %w", l.dir, err)
	}
	return l.failed
}

func (l *Log) append(commits []*store.Commit) error {
	w := l.active
	if w.size() >= l.segmentBytes {
		var err error
		if w, err = l.roll(); err != nil {
			return err
		}
	}
	for _, c := range commits {
		if c.First() != w.written+1 {
			return fmt.Errorf("commit %d does not follow %d", c.First(), w.written)
		}
		l.buffer = appendCommit(l.buffer[:0], c)
		if err := w.commit(c.First(), c.Revision, l.buffer); err != nil {
			return err
		}
		if cap(l.buffer) > 1<<20 {
			l.buffer = nil // one huge object must not cost its memory forever
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	l.mu.Lock()
	w.segment.end = w.written
	w.segment.size = w.synced
	w.publishIndex()
	l.mu.Unlock()
	return l.manifest.note(func(e *entry) { e.end = w.written })
}

// roll begins the next segment. The manifest knows of it before it holds a commit.
func (l *Log) roll() (*writer, error) {
	old := l.active
	w, err := l.create(&segment{after: old.segment.end, previous: old.segment.after, end: old.segment.end}, nil)
	if err != nil {
		return nil, err
	}
	l.active = w
	l.mu.Lock()
	l.segments = append(l.segments, w.segment)
	l.mu.Unlock()
	if err := l.manifest.sync(func(e *entry) { e.newest = w.segment.after }); err != nil {
		return nil, err
	}
	// Everything in it was synced before it was acknowledged.
	return w, old.file.Close()
}

// Replay yields the commits behind a revision.
func (l *Log) Replay(after int64, yield func(*store.Commit) error) error {
	l.mu.Lock()
	segments := make([]segment, len(l.segments))
	for i, s := range l.segments {
		segments[i] = *s // as it is now: what comes later is not part of this replay
	}
	l.mu.Unlock()
	if after < segments[0].after {
		return store.ErrCompacted
	}
	var p parser
	for i := range segments {
		s := &segments[i]
		if s.end <= after {
			continue
		}
		err := l.readCommits(s, after, &p, yield)
		if err == errGone {
			return store.ErrCompacted
		}
		if err != nil {
			return err
		}
		after = s.end
	}
	return nil
}

// Compact writes a new checkpoint, when there is one, and removes what neither it nor the history behind horizon
// needs.
func (l *Log) Compact(horizon int64, c *store.Checkpoint) error {
	if c != nil {
		if err := l.writeCheckpoint(c); err != nil {
			return fmt.Errorf("data directory %s: %w", l.dir, err)
		}
	}
	l.mu.Lock()
	var remove []string
	if c != nil {
		if l.checkpoint > 0 && l.checkpoint != c.Revision {
			remove = append(remove, checkpointName(l.checkpoint))
		}
		l.checkpoint = c.Revision
	}
	n := 0
	for n < len(l.segments)-1 && l.segments[n].end <= min(horizon, l.checkpoint) {
		remove = append(remove, segmentName(l.segments[n].after))
		n++
	}
	l.segments = append(l.segments[:0:0], l.segments[n:]...)
	oldest, checkpoint := l.segments[0].after, l.checkpoint
	l.mu.Unlock()
	if len(remove) == 0 && c == nil {
		return nil
	}
	if err := l.manifest.note(func(e *entry) { e.checkpoint, e.oldest = checkpoint, oldest }); err != nil {
		return fmt.Errorf("data directory %s: %w", l.dir, err)
	}
	for _, name := range remove {
		if err := l.fs.Remove(l.path(name)); err != nil {
			return fmt.Errorf("data directory %s: %w", l.dir, err)
		}
	}
	return nil
}

// Close closes the files and gives the directory free.
func (l *Log) Close() error {
	l.appending.Lock()
	defer l.appending.Unlock()
	if l.active == nil {
		return nil
	}
	var err error
	if l.failed == nil {
		l.failed = store.ErrClosed
		err = l.manifest.sync(func(*entry) {}) // as it is
	}
	return errors.Join(err, l.closeFiles())
}

func (l *Log) closeFiles() error {
	var err error
	if l.active != nil {
		err = l.active.file.Close()
		l.active = nil
	}
	if l.manifest != nil && l.manifest.file != nil {
		err = errors.Join(err, l.manifest.file.Close())
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

func (l *Log) path(name string) string { return l.fs.PathJoin(l.dir, name) }

// syncDir makes created, renamed and removed names durable.
func (l *Log) syncDir(dir string) error {
	d, err := l.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
