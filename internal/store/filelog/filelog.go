// Package filelog is the embedded durable log of a store: a directory of files with the commits of the recent
// history, and a checkpoint of the state.
//
//   - A segment is a file of commits in order, named after the revision before its first one. Only the newest
//     segment, the active one, is written to.
//   - A checkpoint is a file with the state as of one revision. It replaces all commits up to that revision, except
//     as history.
//   - A frame is one entry of these files: a commit, a part of a checkpoint, or a header or end.
//   - The manifest is a file that names the files of the log, and the revision up to which it is synced. It is
//     written after every sync of the active segment, and is not synced itself then.
//   - The synced offset of a frame is the offset up to which its segment had been synced when the frame was written.
//     It is the evidence that remains if a loss of power destroyed the newest entry of the manifest.
//
// The guarantee:
//
//	Append returned nil  ⇒  after any crash or loss of power the log has the commits, or Open names the damaged file
//
// The problem is to distinguish two cases in which a frame does not read back: the unfinished end of a write that was
// never acknowledged, which has to be dropped silently, and damage to acknowledged commits, which must never be
// dropped. Reading the log up to the first bad frame drops acknowledged commits after a flipped bit. A checksum only
// shows that a frame is bad, not which of the two cases it is. So the log keeps evidence of what was synced, the
// manifest and the synced offsets, and recoverLast evaluates it.
//
// Frames are records of Pebble's log format, and files are accessed through Pebble's vfs, so that tests run on file
// systems that lose and refuse writes. docs/formats.md specifies the format, docs/decisions/0001-embedded-log.md has
// the reasons.
//
// A directory, after a while:
//
//	FORMAT                       plinth data 3
//	MANIFEST                     the newest files, and up to where they are synced
//	00000000000000012000.base    the checkpoint of revision 12000
//	00000000000000009120.log     segments: revisions 9121 to 11480, kept as history,
//	00000000000000011480.log     11481 to 13960, of which those after 12000 are not in the checkpoint,
//	00000000000000013960.log     and the active one
//
// Where to begin to read: Append and append write; payload.go encodes a commit, frame.go a frame; open and recoverLast
// read them back after a crash; Compact and writeCheckpoint remove old commits.
//
// Caveats. One process at a time can open a directory. After a failed write or sync the log accepts no more commits
// until it is opened again, because the content of the disk is unknown until it is read; only when the disk is full, it
// goes on in a new segment as soon as there is room. The directory must be left alone while it is open: an Append that
// finds its segment removed, renamed or replaced fails, and is the last one. A file system that acknowledges a sync and
// does not write loses commits like those of every database on it; the manifest and the offsets then reveal the loss in
// most cases, but cannot undo it.
package filelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/durable"
	"plinth/internal/execution"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// Options configure a Log. The zero value has the defaults.
type Options struct {
	FS vfs.FS // the operating system's by default
	// SegmentBytes is the size at which a new segment is begun; 8 MiB by default. History is removed by whole
	// segments.
	SegmentBytes int64
	// NoSync lets the operating system decide when files reach the disk. Acknowledged commits survive the end of the
	// process, but not a loss of power, after which the log may no longer open: files then reach the disk in another
	// order than that in which they depend on each other.
	NoSync bool
	// Sealing encrypts versions in checkpoints, and decrypts; those of commits come with their Seals. nil: nothing is
	// encrypted, and what was is unreadable.
	Sealing store.Sealing
	Logger  *slog.Logger
}

// Log is an open directory. It consists of:
//
//	segments[i].end = segments[i+1].after,  segments[i+1].previous = segments[i].after
//	segments[0].after ≤ max(checkpoint, FirstRevision): every commit after the checkpoint is in a segment
//	checkpoint ≤ end of the last segment
//
// There are four locks. appending is held for the duration of an Append, and so of a sync; it guards the file of the
// active segment. mu guards the lists and is held only to read or change them, never while a file is read or written.
// The manifest has a separate lock, which is held while an entry is written. appending is taken before the two others;
// mu and that of the manifest are never held together. removing keeps the files that Freeze opens; it is held for
// the moment that this takes, and never with appending.
//
// Append, Compact and any number of Replays run at the same time. An Append changes the end of the last segment and may
// add one; a Compact removes segments from the front, never the last one, and replaces the checkpoint. A Replay copies
// the list under mu and then reads files without a lock: commits that Append adds later are beyond the sizes that it
// copied, and a file that Compact removes meanwhile is reported as compacted.
type Log struct {
	fs           vfs.FS
	dir          string
	logger       *slog.Logger
	segmentBytes int64
	sealing      store.Sealing
	lock         io.Closer

	appending sync.Mutex // guards the following
	active    *writer    // of the last segment; nil: the next Append begins another one (abandon)
	buffer    []byte     // scratch buffer, for the payload of a commit
	failed    error      // why no more commits are accepted; nil: they are

	manifest *manifest // has a separate lock

	removing sync.Mutex // held while files are removed, and while those of a Frozen are opened. It is taken before mu.

	mu         sync.Mutex
	segments   []*segment // oldest first; the last one is active
	checkpoint int64      // revision of the checkpoint, 0 without one
}

// segment is one file of commits. Readers may read the file up to size, where the frame of the commit that ends with
// end ends.
//
//	revisions of its commits: after < revision ≤ end, without gaps
//	size ≤ what is synced, in the active segment
//
// mu guards end, size and index; the other fields never change.
type segment struct {
	after, previous int64 // previous: after of the segment before it; -1 for the very first one
	end             int64
	size            int64
	index           sparseIndex
}

// check fails where an invariant of the log does not hold. The caller holds mu, or is alone.
func (l *Log) check() {
	for i, s := range l.segments {
		if s.after > s.end || i > 0 && (l.segments[i-1].end != s.after || s.previous != l.segments[i-1].after) {
			invariants.Fail("filelog: segment %d, from %d to %d, follows %d", i, s.after, s.end, s.previous)
		}
	}
	first, last := l.segments[0].after, l.segments[len(l.segments)-1].end
	if first > max(l.checkpoint, firstRevision) || l.checkpoint > last {
		invariants.Fail("filelog: segments from %d to %d, and the checkpoint is of %d", first, last, l.checkpoint)
	}
}

// DamageError names a file of the log whose content differs from the bytes that were written.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// MissingError names the file of the log that is missing. It is separate from DamageError because the remedy is
// different: to put the file back, rather than to restore a backup.
type MissingError struct{ File, Reason string }

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: %s", e.File, e.Reason) }

// ErrLocked means that another process, or this one, has the directory open.
var ErrLocked = errors.New("in use")

// Open opens a directory, and creates it if it does not exist. It completes or removes what a crash left unfinished.
// All acknowledged commits are in the log, or Open returns an error that names the damaged file.
func Open(dir string, o Options) (*Log, error) {
	if o.FS == nil {
		o.FS = diskFS{durable.FS}
	}
	if o.NoSync {
		o.FS = durable.Unsynced{FS: o.FS}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 8 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{fs: o.FS, dir: dir, logger: o.Logger, segmentBytes: o.SegmentBytes, sealing: o.Sealing}
	if err := l.open(); err != nil {
		l.closeFiles() //nolint:errcheck // the first error is the one to return
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return l, nil
}

// Append makes commits durable. It implements store.Log.
//
// A failure is final, unless the disk was full (abandon). After a failed sync Linux marks the pages as clean although
// they are not on the disk, so a second sync would succeed and prove nothing; and after a failed write the file may end
// in half a frame. So every later Append returns the same error, and the next Open reads the content of the disk.
func (l *Log) Append(commits []*store.Commit) error {
	return l.exclusively(func() error { return l.append(commits) })
}

// exclusively calls a function that writes to the active segment, or begins another one, and notes a failure.
func (l *Log) exclusively(do func() error) error {
	l.appending.Lock()
	defer l.appending.Unlock()
	if l.failed != nil {
		return l.failed
	}
	execution.AssertOutside(context.Background(), "a disk")
	l.failed = errPanicked // what remains if do does not return
	err := do()
	if err != nil {
		err = fmt.Errorf("data directory %s: %w", l.dir, err)
	}
	if l.failed = err; errors.Is(err, store.ErrNoRoom) {
		l.failed = nil
	}
	return err
}

var errPanicked = errors.New("an append to the log has panicked")

// append writes all commits, then syncs once, and only then makes them readable and writes the manifest:
//
//	manifest.end ≤ end of the active segment ≤ newest synced commit ≤ newest written commit
//
// So an entry of the manifest is never ahead of the disk, and Replay never yields a commit that a loss of power could
// take back. The cost is one sync for all commits of a batch; the entry of the manifest is written and not synced.
//
// A crash between two of the steps: before the sync, the commits were not acknowledged, and Open finds them or not;
// after the sync and before the entry, Open finds them by their frames, as evidence of the sync is not needed for
// frames that read back.
func (l *Log) append(commits []*store.Commit) error {
	w := l.active
	if w == nil || w.size() >= l.segmentBytes {
		var err error
		if w, err = l.roll(); err != nil {
			return err
		}
	}
	if err := l.write(w, commits); err != nil {
		return l.abandon(w, err)
	}
	if err := l.stillNamed(w); err != nil {
		return err
	}
	l.mu.Lock()
	w.segment.end = w.written
	w.segment.size = w.synced
	w.publishIndex()
	if invariants.Enabled {
		l.check()
	}
	l.mu.Unlock()
	err := l.manifest.writeUnsynced(func(e *entry) { e.end = w.written })
	if isFull(err) { // as after a crash before it: the commits are durable, and Open finds them by their frames
		l.logger.Warn("the manifest could not be written, as the disk is full", "error", err)
		return nil
	}
	return err
}

// write writes commits to a segment, and syncs it.
func (l *Log) write(w *writer, commits []*store.Commit) error {
	for _, c := range commits {
		if c.First() != w.written+1 {
			return fmt.Errorf("commit %d does not follow %d", c.First(), w.written)
		}
		l.buffer = appendCommit(l.buffer[:0], c)
		if invariants.Enabled {
			checkPayload(l.buffer, c, l.sealing)
		}
		if err := w.commit(c.First(), c.Revision, l.buffer); err != nil {
			return err
		}
		if size := cap(l.buffer); size > 1<<20 || size > 64<<10 && len(l.buffer) < size/8 {
			l.buffer = nil // do not keep the memory of a huge commit, or of one that was much larger than this one
		}
	}
	return w.sync()
}

// abandon ends the active segment after a failed write or sync, if the reason is that the disk is full; any other
// failure is final.
//
// The problem: a full disk is not a broken one. Somebody makes room, and the log should go on by itself. But what the
// segment has after its synced offset is unknown: whole frames of commits that were refused, half a frame, or pages
// that a failed sync has marked as clean. To write on after it, to overwrite it, or to sync that file again proves
// nothing about its content. So nothing is: the file is closed as it is, and the next Append begins another segment,
// after the last synced commit of this one (roll).
//
//	commits of a segment = those up to its end; end = newest synced commit, and the next segment begins after it
//
// What follows end in the abandoned file is ignored as soon as the next segment exists (readers stop at end, chain
// takes it from the next segment), and its revisions are given out again. If the process ends before that, recoverLast
// finds the file as a crash leaves it, and keeps or drops frames that were not acknowledged.
func (l *Log) abandon(w *writer, err error) error {
	if !isFull(err) {
		return err
	}
	l.active = nil
	w.file.Close() //nolint:errcheck // nothing depends on what is after its synced offset
	return fmt.Errorf("%w: %w", store.ErrNoRoom, err)
}

// isFull says whether an operation failed because the disk, or the quota of its user, is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// stillNamed fails if the file of a segment is not the one that has its name. A file that was removed, or that is in a
// directory that was renamed, can be written and synced like every other; the commits would be gone at the next Open,
// which would find an empty log, or another one, without a word. It is checked after the sync and before the commits
// are acknowledged, by one look-up of the path.
func (l *Log) stillNamed(w *writer) error {
	same, err := l.names(w.path, w.info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &MissingError{File: w.path, Reason: "it was removed, or renamed, while commits were written to it"}
	case err != nil:
		return err
	case !same:
		return &MissingError{File: w.path, Reason: "another file has its name, while commits were written to it"}
	}
	return nil
}

// identifier is a file system with a cheaper way than Stat to say whether a path names a file.
type identifier interface {
	names(path string, file vfs.FileInfo) (bool, error)
}

// names says whether a path names a file.
func (l *Log) names(path string, file vfs.FileInfo) (bool, error) {
	if cheaper, ok := l.fs.(identifier); ok {
		if same, err := cheaper.names(path, file); !errors.Is(err, errors.ErrUnsupported) {
			return same, err
		}
	}
	info, err := l.fs.Stat(path)
	return err == nil && sameFile(file, info), err
}

// roll begins the next segment. The manifest names it, synced, before it gets a commit: otherwise its loss could not be
// noticed, as segments only name the one before them. A crash before that leaves an empty segment, which chain accepts
// and recoverLast continues. A segment without commits is replaced, since the next one has the same name.
func (l *Log) roll() (*writer, error) {
	l.mu.Lock()
	last := l.segments[len(l.segments)-1]
	l.mu.Unlock()
	s := &segment{after: last.end, previous: last.after, end: last.end}
	if last.end == last.after {
		s.previous = last.previous
	}
	w, err := l.create(s, nil)
	if isFull(err) {
		return nil, fmt.Errorf("%w: %w", store.ErrNoRoom, err)
	}
	if err != nil {
		return nil, err
	}
	old := l.active
	l.active = w
	l.mu.Lock()
	if n := len(l.segments) - 1; s.after == last.after {
		l.segments[n] = s
	} else {
		l.segments = append(l.segments, s)
	}
	l.mu.Unlock()
	err = l.manifest.writeSynced(func(e *entry) { e.newest = s.after })
	if old != nil {
		err = errors.Join(err, old.file.Close()) // all of it is synced
	}
	if err != nil {
		return nil, l.abandon(w, err)
	}
	return w, nil
}

// Replay yields the commits after a revision. It reads a copy of the list of segments, as they are at the call,
// without a lock; Compact may remove a file meanwhile, and then its commits are reported as compacted. Commits that
// are appended after the call are not yielded.
//
// One parser serves all segments: it reuses its buffers from commit to commit, which is why commits are lent.
func (l *Log) Replay(ctx context.Context, after int64, _ []string, yield func(*store.Commit) error) error {
	l.mu.Lock()
	segments := make([]segment, len(l.segments))
	for i, s := range l.segments {
		segments[i] = *s
	}
	l.mu.Unlock()
	if after < segments[0].after {
		return store.ErrCompacted
	}
	p := parser{sealing: l.sealing, ctx: ctx}
	for i := range segments {
		s := &segments[i]
		if s.end <= after {
			continue
		}
		err := l.readCommits(ctx, s, after, &p, yield)
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

// Compact writes a new checkpoint, if there is one, and removes the files that neither it nor the history after
// horizon needs:
//
//	a segment is removed  ⇒  its end ≤ min(horizon, checkpoint), and it is not the active one
//
// The order keeps the log complete wherever it is interrupted: the checkpoint is synced first, since it replaces
// commits that are in the segments to be removed; then an entry of the manifest without the files is written, so that
// Open does not warn about files that were removed on purpose; then they are removed. If a crash prevents that, the
// next Open removes them.
//
// The entry of the manifest need not be synced: an older one names removed files of the history, for which Open only
// warns.
func (l *Log) Compact(horizon int64, c *store.Checkpoint) error {
	if c != nil {
		if err := l.writeCheckpoint(c); err != nil {
			return fmt.Errorf("data directory %s: %w", l.dir, err)
		}
	}
	l.removing.Lock()
	defer l.removing.Unlock()
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
	l.segments = append(l.segments[:0:0], l.segments[n:]...) // a copy, which frees the old ones
	if invariants.Enabled {
		l.check()
	}
	oldest, checkpoint := l.segments[0].after, l.checkpoint
	l.mu.Unlock()
	if len(remove) == 0 && c == nil {
		return nil
	}
	if err := l.manifest.writeUnsynced(func(e *entry) { e.checkpoint, e.oldest = checkpoint, oldest }); err != nil {
		return fmt.Errorf("data directory %s: %w", l.dir, err)
	}
	for _, name := range remove {
		if err := l.fs.Remove(l.path(name)); err != nil {
			return fmt.Errorf("data directory %s: %w", l.dir, err)
		}
	}
	return nil
}

// Bounds are the revision after which the log has all commits, and that of the newest one.
func (l *Log) Bounds() (oldest, newest int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[0].after, l.segments[len(l.segments)-1].end
}

// Close syncs the manifest, closes the files and unlocks the directory. A running Append is finished first. After a
// failed Append the manifest is left as it is: it must not claim more than what was synced.
func (l *Log) Close() error {
	l.appending.Lock()
	defer l.appending.Unlock()
	if l.lock == nil {
		return nil
	}
	var err error
	if l.failed == nil {
		l.failed = store.ErrClosed
		err = l.manifest.writeSynced(func(*entry) {})
	}
	return errors.Join(err, l.closeFiles())
}

// closeFiles closes all open files; it is also called for a Log that failed to open.
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
		l.lock = nil
	}
	return err
}

// path is the path of a file in the directory.
func (l *Log) path(name string) string { return l.fs.PathJoin(l.dir, name) }
