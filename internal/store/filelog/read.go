package filelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/execution"
	"plinth/internal/store"
)

// errGone means that Compact removed a segment before it was opened for reading. It is not damage: a reader that is so
// slow has left the window, and its watch gets 410.
var errGone = errors.New("segment is gone")

// readCommits yields the commits of a segment with revisions greater than after. s is a copy of the segment: all
// commits up to s.end were acknowledged, so a frame that does not read back, or a gap between two commits, is damage.
//
//	the commits yielded have the revisions after+1 to s.end, without gaps; the first may have begun before
//
// The index gives the offset to start from. A segment that was opened from disk has none yet; the frames read are added
// to it, and it is kept for the next reader. Reading stops at s.end, not at the end of the file: after it there may be
// frames of an Append that is running.
//
// No lock is held. The file cannot change up to s.size; if Compact removes it after it was opened, this reader can
// still read it. So yield may take any time, as a watch of a slow client does, and delays no commit.
func (l *Log) readCommits(ctx context.Context, s *segment, after int64, p *parser,
	yield func(*store.Commit) error) error {
	file := l.path(segmentName(s.after))
	var f vfs.File
	var err error
	execution.Outside(ctx, func() { f, err = l.fs.Open(file) })
	// Compact has removed it since the list was copied. Any other missing file was found by Open.
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return err
	}
	defer f.Close()
	start := s.index.find(after)
	// Clipped: added entries must not overwrite those of another reader, which has the same slice.
	index := slices.Clip(s.index)
	defer func() { l.keepIndex(s.after, index) }()
	r := newReader(outside{ctx, f}, start, s.size)
	// A reader that starts in the middle does not know the revision before the first commit that it reads.
	last := int64(-1)
	if start == 0 {
		last = s.after
	}
	for {
		fr, err := r.next()
		if err == io.EOF || err == errBroken {
			return &DamageError{File: file, Offset: fr.offset, Reason: "a frame that was synced does not read back"}
		}
		if err != nil {
			return err
		}
		// The header.
		if fr.kind != frameCommit {
			continue
		}
		first, why := fr.follows(last)
		// The first commit must not begin later than the index entry.
		if why == nil && last < 0 && first > after+1 {
			why = fmt.Errorf("commit %d follows commit %d", first, after)
		}
		if why != nil {
			return &DamageError{File: file, Offset: fr.offset, Reason: why.Error()}
		}
		last = fr.revision
		index.add(fr.offset, first)
		// A commit between the offset of the index and the first wanted one. Its changes are not parsed.
		if fr.revision <= after {
			continue
		}
		c, why := p.commitOf(fr.payload)
		if why != nil {
			return &DamageError{File: file, Offset: fr.offset, Reason: why.Error()}
		}
		// After the end of ctx what a plugin was to decrypt is unreadable for want of time, which is not to be yielded.
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := yield(c); err != nil {
			return err
		}
		if fr.revision == s.end {
			return nil
		}
	}
}

// outside reads a file while the request of ctx is outside. The reader above it asks for blocks of 32 kB.
type outside struct {
	ctx  context.Context
	file io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (o outside) ReadAt(b []byte, at int64) (n int, err error) {
	execution.Outside(o.ctx, func() {
		execution.AssertOutside(o.ctx, "a disk")
		n, err = o.file.ReadAt(b, at)
	})
	return n, err
}

// keepIndex stores the index of a segment that was read, if it is longer than the existing one. The segment may have
// been removed meanwhile; then nothing is stored. So the first watch that resumes after a restart reads a segment from
// its beginning, up to 8 MiB, and later ones start near their revision.
func (l *Log) keepIndex(after int64, index sparseIndex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments[:len(l.segments)-1] { // the writer keeps that of the active one
		if s.after == after && len(index) > len(s.index) {
			s.index = index
		}
	}
}
