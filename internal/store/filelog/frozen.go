package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Frozen is a log as of one moment, for whoever copies it: files that make a directory which opens, with all commits
// that were acknowledged before the call, and none of later ones.
//
// The problem: a copy takes minutes, at the pace of whoever reads it, and meanwhile commits are appended to the active
// segment, the manifest is overwritten, and Compact removes files. To hold a lock as long would stop all writes, and to
// copy the files first would need their room again. But all that is copied stays as it is:
//
//	segment[:size] never changes, where size is its synced end;  a checkpoint never changes
//	an open file that was removed can be read until it is closed
//
// So under the locks only the sizes are noted and the files are opened. The manifest does change, so it is not copied:
// it is made, of what was noted, as a clean Close would have left it.
type Frozen struct {
	Format     int       // of the directory
	Revision   int64     // of the newest commit
	Checkpoint int64     // the revision of the checkpoint; 0: there is none
	Since      time.Time // when the checkpoint was complete
	Files      []FrozenFile
}

// FrozenFile is a file of a Frozen.
type FrozenFile struct {
	Name    string
	Size    int64
	content io.ReaderAt
	file    vfs.File // nil: the content is in memory
}

// Open returns a reader of the content. The Frozen is closed later.
func (f *FrozenFile) Open() io.Reader { return io.NewSectionReader(f.content, 0, f.Size) }

// Close closes the files.
func (s *Frozen) Close() error {
	var err error
	for _, f := range s.Files {
		if f.file != nil {
			err = errors.Join(err, f.file.Close())
		}
	}
	return err
}

// Freeze opens the log as of now: FORMAT, a manifest, the checkpoint, and the segments from the one that has the
// commit of the checkpoint on. Earlier segments are history alone. The caller has to close it.
//
// A file that Compact removes meanwhile takes its room until then.
func (l *Log) Freeze() (*Frozen, error) {
	// Compact removes no file between the copy of the list and the opening of what is in it.
	l.removing.Lock()
	defer l.removing.Unlock()
	l.mu.Lock()
	segments := make([]segment, 0, len(l.segments))
	for i, s := range l.segments {
		if s.end >= l.checkpoint || i == len(l.segments)-1 {
			segments = append(segments, *s)
		}
	}
	checkpoint := l.checkpoint
	l.mu.Unlock()

	last := &segments[len(segments)-1]
	s := &Frozen{Format: formatVersion, Revision: last.end, Checkpoint: checkpoint}
	s.made(formatName, fmt.Appendf(nil, "%s%d\n", formatMagic, formatVersion))
	s.made(manifestName, manifestOf(entry{checkpoint: checkpoint, oldest: segments[0].after, newest: last.after,
		end: last.end}))
	var err error
	if checkpoint > 0 {
		err = s.add(l, checkpointName(checkpoint), -1)
	}
	for i := range segments {
		if err == nil {
			err = s.add(l, segmentName(segments[i].after), segments[i].size)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", l.dir, errors.Join(err, s.Close()))
	}
	return s, nil
}

// made adds a file that is not on the disk in this form.
func (s *Frozen) made(name string, content []byte) {
	s.Files = append(s.Files, FrozenFile{Name: name, Size: int64(len(content)), content: bytes.NewReader(content)})
}

// add opens a file; size -1 is all of it, which is a checkpoint.
func (s *Frozen) add(l *Log, name string, size int64) error {
	f, err := l.fs.Open(l.path(name))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && size > info.Size() {
		err = &DamageError{File: l.path(name), Offset: info.Size(), Reason: "it is shorter than what was synced"}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if size < 0 {
		size, s.Since = info.Size(), info.ModTime()
	}
	s.Files = append(s.Files, FrozenFile{name, size, f, f})
	return nil
}

// IsFile says whether a file of this name may be in a Frozen.
func IsFile(name string) bool {
	_, kind, ok := parseName(name)
	return name == formatName || name == manifestName || ok && (kind == "log" || kind == "base")
}
