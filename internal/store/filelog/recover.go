package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// recoverLast finds the end of the last segment, and begins the segment to write to. synced is the revision up to
// which commits are synced by the manifest.
//
// The problem: the last segment may end with frames that were never synced, so never acknowledged, and these may be
// torn, or be readable now and lost by the next loss of power. Keeping all readable frames and writing on after them
// fails twice. First, a bad frame in the middle would silently cut off acknowledged commits. Second, data that a failed
// sync left in the page cache reads back as well, but is not on the disk, and no later sync needs to write it.
//
// Two things are evidence that a commit was synced: the revision in the manifest, and the synced offset of a later
// frame. After a loss of power the manifest may be older than the frames.
//
//	proven = max(synced offsets read, end of the commits with revisions ≤ synced)
//	a frame at offset o that does not read back is damage  ⇔  o < proven, or the manifest names a commit at or after o,
//	    or a frame after o has a synced offset > o;  else it is the unfinished end of the last write
//	commits of the new segment = those that read back and begin at or after proven
//
// So every commit that Open finds is on the disk when it returns, whether it was acknowledged or not.
//
// Example: commits 5, 6 and 7 end the segment, and the frame of 6 does not read back. If 6 and 7 were written by one
// Append, both frames have the synced offset at which 6 begins: there is no evidence that they were synced, so power
// was lost before the sync, and both are dropped. If 7 was written by the next Append, its synced offset is where 6
// ends: 6 was synced and so acknowledged, and Open returns an error.
//
// The cost is one pass over the segment, and one over the part after a bad frame.
func (l *Log) recoverLast(synced int64) error {
	last := l.segments[len(l.segments)-1]
	file := l.path(segmentName(last.after))
	f, err := l.fs.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()

	// revision is that of the last commit that begins before proven.
	var proven, revision int64 = 0, last.after
	type seen struct{ offset, revision int64 }
	var unproven []seen // the commits that begin at or after proven, in order
	// prove records that the file was synced up to an offset: commits that begin before it are proven.
	prove := func(synced int64) {
		for len(unproven) > 0 && unproven[0].offset < synced {
			revision = unproven[0].revision
			unproven = unproven[1:]
		}
		proven = max(proven, synced)
	}
	r := newReader(f, 0, last.size)
	last.end = last.after
	end := int64(0)
	for {
		fr, err := r.next()
		end = fr.offset
		// The manifest proves commits by their revision: the one that was read last ends where this frame
		// begins.
		if last.end > last.after && last.end <= synced {
			prove(end)
		}
		if err == io.EOF {
			break
		}
		// The evidence read so far, and that of the manifest, which has commits that were not read.
		// checkBroken looks for more after it.
		if err == errBroken {
			if err := l.checkBroken(f, file, fr.offset, last, proven > fr.offset || last.end < synced); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return err
		}
		// A frame proves that everything before its synced offset was synced; that is never beyond its own offset.
		prove(fr.synced)
		if fr.kind != frameCommit {
			continue
		}
		if _, why := fr.follows(last.end); why != nil {
			return &DamageError{File: file, Offset: fr.offset, Reason: why.Error()}
		}
		last.end = fr.revision
		unproven = append(unproven, seen{fr.offset, fr.revision})
	}
	// The file ends, or the rest is an unfinished write. Everything proven must have been read.
	switch {
	case last.end < synced:
		reason := fmt.Sprintf("it ends with commit %d, and commits up to %d were synced", last.end, synced)
		return &DamageError{File: file, Offset: end, Reason: reason}
	case proven > end:
		return &DamageError{File: file, Offset: end, Reason: "it ends before what was synced"}
	case l.checkpoint > last.end:
		return fmt.Errorf("%s is newer than the last commit, %d: a segment (*.log) is missing",
			checkpointName(l.checkpoint), last.end)
	}

	// A short segment is written again as a whole, instead of being followed by a new one: otherwise a thousand restarts
	// would leave a thousand files. After a long one, a new segment gets the unproven commits: the old one is never
	// written to again, so its proven frames cannot be harmed.
	s := &segment{after: revision, previous: last.after, end: last.end}
	found, foundEnd := l.segments, last.end
	if proven <= l.segmentBytes/8 || revision == last.after {
		s.after, s.previous = last.after, last.previous
		l.segments = l.segments[:len(l.segments)-1]
	} else {
		last.end, last.size = revision, proven
	}
	err = l.begin(s, newReader(f, 0, end))
	if isFull(err) {
		// Reads need no new segment, and the first Append begins one when there is room.
		l.logger.Warn("there is no room for a new segment: the log can be read, and takes commits when there is some",
			"directory", l.dir, "error", err)
		l.segments, last.end, last.size = found, foundEnd, end
		return l.rewrite(file, proven, end)
	}
	return err
}

// rewrite makes the frames between two offsets of a segment durable where they are. They read back, but that shows only
// that the page cache has them: after a failed sync these pages are marked as clean, and a sync alone would write
// nothing. So the same bytes are written to the same place, which takes no room and can tear nothing, and are synced
// then.
func (l *Log) rewrite(file string, from, to int64) error {
	if from >= to {
		return nil
	}
	f, err := l.fs.OpenReadWrite(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	b := make([]byte, to-from)
	if _, err = f.ReadAt(b, from); err == nil || err == io.EOF {
		_, err = f.WriteAt(b, from)
	}
	if err == nil {
		err = f.SyncData()
	}
	return errors.Join(err, f.Close())
}

// checkBroken returns an error if a frame of the last segment that does not read back is damage; synced says that there
// is evidence already. Otherwise the write was not finished, and the frame and the rest of the file are dropped. If the
// rest is all zeros, it is not a frame, but the preallocated end of the file, and no warning is logged.
func (l *Log) checkBroken(f vfs.File, file string, offset int64, last *segment, synced bool) error {
	if !synced {
		var err error
		if synced, err = syncedBeyond(f, offset); err != nil {
			return err
		}
	}
	if synced {
		return &DamageError{File: file, Offset: offset, Reason: "a frame that was synced does not read back"}
	}
	blank, err := allZero(io.NewSectionReader(f, offset, last.size-offset))
	if err != nil || blank {
		return err
	}
	l.logger.Warn("the last write to the log was not finished and is dropped; it was never acknowledged",
		"file", file, "offset", offset, "bytes", last.size-offset, "revision", last.end)
	return nil
}

// allZero says whether a reader yields only zeros. An error of the disk is returned as one: it is not evidence of an
// unfinished write.
func allZero(r io.Reader) (bool, error) {
	b := make([]byte, 64<<10)
	for {
		n, err := r.Read(b)
		if !bytes.Equal(b[:n], zeros[:n]) {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// begin makes s the active segment, with the commits from old that belong in it. The caller is alone.
func (l *Log) begin(s *segment, old *reader) error {
	w, err := l.create(s, old)
	if err != nil {
		return err
	}
	l.active = w
	l.segments = append(l.segments, s)
	return nil
}

// create writes the file of a new segment s. It copies those commits of s into it that old has; nil has none. The file
// gets its name when they are synced, as in install, but stays open to be written to.
func (l *Log) create(s *segment, old *reader) (*writer, error) {
	name := segmentName(s.after)
	f, err := l.fs.Create(l.path(name+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	w := newWriter(f)
	w.segment, w.written, w.step = s, s.after, min(preallocateStep, l.segmentBytes)
	if err = w.begin(old); err == nil {
		err = l.rename(name)
	}
	if err == nil {
		w.path = l.path(name)
		w.info, err = f.Stat()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), l.discard(name))
	}
	s.size = w.synced
	w.publishIndex()
	return w, nil
}

// begin writes the header of a segment and the commits of old, and syncs them. It reads old a second time: keeping its
// commits in memory after the first time would take as much memory as a segment. A commit that does not read back now
// is an error.
func (w *writer) begin(old *reader) error {
	s := w.segment
	if err := w.frame(frameSegment, 0, s.after, appendFileHeader(nil, segmentMagic, s.after, s.previous)); err != nil {
		return err
	}
	for old != nil && w.written < s.end {
		f, err := old.next()
		if err != nil {
			return fmt.Errorf("commit %d read back once, but not again: %w", w.written+1, err)
		}
		// Frames before the new segment stay in the old one. That the copies follow one another is checked
		// again.
		if f.kind == frameCommit && f.revision > s.after {
			first, err := f.follows(w.written)
			if err != nil {
				return err
			}
			if err := w.commit(first, f.revision, f.payload); err != nil {
				return err
			}
		}
	}
	return w.sync()
}
