package filelog

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// recoverLast finds the end of the last segment and begins the one to write to. What is not known to be synced is
// written anew, even where it reads back: what a failed sync left in the page cache reads back as well, and is on no disk.
func (l *Log) recoverLast() error {
	last := l.segments[len(l.segments)-1]
	file := l.path(segmentName(last.after))
	f, err := l.fs.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()

	// Frames up to proven were promised; revision is that of the last one there.
	var proven, revision int64 = 0, last.after
	type seen struct{ offset, revision int64 }
	var unproven []seen
	prove := func(promise int64) {
		for len(unproven) > 0 && unproven[0].offset < promise {
			revision = unproven[0].revision
			unproven = unproven[1:]
		}
		proven = max(proven, promise)
	}
	r := newReader(f, 0, last.size)
	last.end = last.after
	end := int64(0)
	for {
		fr, err := r.next()
		end = fr.offset
		if err == io.EOF {
			break
		}
		if err == errBroken {
			lost, err := promised(f, fr.offset)
			if err != nil {
				return err
			}
			if lost || proven > fr.offset {
				return &DamageError{File: file, Offset: fr.offset, Reason: "a frame that was synced does not read back"}
			}
			break
		}
		if err != nil {
			return err
		}
		prove(fr.promise)
		if fr.kind != frameCommit {
			continue
		}
		if fr.revision != last.end+1 {
			return &DamageError{File: file, Offset: fr.offset, Reason: fmt.Sprintf("commit %d follows commit %d", fr.revision, last.end)}
		}
		last.end = fr.revision
		unproven = append(unproven, seen{fr.offset, fr.revision})
	}
	if proven > end {
		return &DamageError{File: file, Offset: end, Reason: "it ends before what was synced"}
	}

	// A short segment is written anew, and not followed by one more: else a thousand restarts would make a thousand files.
	s := &segment{after: revision, previous: last.after, end: last.end}
	if proven <= l.segmentBytes/8 || revision == last.after {
		s.after, s.previous = last.after, last.previous
		l.segments = l.segments[:len(l.segments)-1]
	} else {
		last.end, last.size = revision, proven
	}
	return l.begin(s, newReader(f, 0, end))
}

// begin makes s the active segment, with the commits from old that belong in it.
func (l *Log) begin(s *segment, old *reader) error {
	w, err := l.create(s, old)
	if err != nil {
		return err
	}
	l.active = w
	l.segments = append(l.segments, s)
	return nil
}

// create writes the file of a new segment, and copies those commits of s into it that old holds.
func (l *Log) create(s *segment, old *reader) (*writer, error) {
	name := segmentName(s.after)
	f, err := l.fs.Create(l.path(name+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	w := newWriter(f)
	w.segment, w.written, w.step = s, s.after, min(zeroStep, l.segmentBytes)
	if err = w.begin(old); err == nil {
		err = l.rename(name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), l.discard(name))
	}
	s.size = w.synced
	w.publishIndex()
	return w, nil
}

// begin writes the first frames of a segment, syncs them, and promises that.
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
		if f.kind == frameCommit && f.revision > s.after {
			if err := w.commit(f.revision, f.payload); err != nil {
				return err
			}
		}
	}
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.promise(); err != nil {
		return err
	}
	return w.sync()
}
