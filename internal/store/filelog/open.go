package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
)

// The versions of what is on the disk; docs/formats.md describes them.
const (
	formatVersion     = 2 // of the directory, in its file FORMAT
	formatNoManifest  = 1 // the version that had no MANIFEST; it is read, and brought to formatVersion
	fileFormatVersion = 1 // in the headers of files
)

const (
	formatName  = "FORMAT"
	formatMagic = "plinth data "
	lockName    = "LOCK"
	tmpSuffix   = ".tmp"
)

// firstRevision is that of an empty store: the first commit is the one behind it.
const firstRevision = store.FirstRevision

func segmentName(after int64) string       { return fmt.Sprintf("%020d.log", after) }
func checkpointName(revision int64) string { return fmt.Sprintf("%020d.base", revision) }

// parseName splits the name of a segment or checkpoint.
func parseName(name string) (revision int64, kind string, ok bool) {
	number, kind, ok := strings.Cut(name, ".")
	if !ok || len(number) != 20 {
		return 0, "", false
	}
	revision, err := strconv.ParseInt(number, 10, 64)
	return revision, kind, err == nil
}

func (l *Log) open() error {
	if err := l.makeDir(); err != nil {
		return err
	}
	lock, err := l.fs.Lock(l.path(lockName))
	if err != nil {
		return lockError(err)
	}
	l.lock = lock
	segments, checkpoints, unfinished, err := l.list()
	if err != nil {
		return err
	}
	version, err := l.readFormat()
	if err != nil {
		return err
	}
	switch version {
	case formatVersion:
		if err := l.openManifest(); err != nil {
			return err
		}
	case formatNoManifest:
		l.manifest = &manifest{} // nothing is known, until upgrade
	default:
		if err := l.beginDirectory(len(segments)+len(checkpoints) > 0); err != nil {
			return err
		}
	}
	known := l.manifest.entry
	if len(checkpoints) > 0 {
		l.checkpoint = checkpoints[len(checkpoints)-1]
	}
	if len(segments) == 0 {
		err = l.beginFirst(known)
	} else if err = l.link(segments, known); err == nil {
		err = l.recoverLast(known.end)
	}
	if err != nil {
		return err
	}
	if version == formatNoManifest {
		if err := l.upgrade(); err != nil {
			return err
		}
	}
	if err := l.manifest.sync(l.describe); err != nil {
		return err
	}
	return l.removeStale(segments, checkpoints, unfinished)
}

// lockError tells a directory that somebody has open from one that cannot be locked at all: because it is read-only,
// full, or on a file system without locks. The vfs has no errors of its own for that. Where a lock is held, it
// returns the bare number of fcntl, or, if the holder is this process, an error without a number.
func lockError(err error) error {
	var file *fs.PathError
	var number syscall.Errno
	switch {
	case errors.As(err, &file):
		return err // the lock file could not be made, and the error says why
	case !errors.As(err, &number):
		return fmt.Errorf("%w by this process: %w", ErrLocked, err)
	case number == syscall.EAGAIN || number == syscall.EACCES:
		return fmt.Errorf("%w by another process", ErrLocked)
	}
	return fmt.Errorf("%s cannot be locked: %w", lockName, err)
}

// beginDirectory makes a directory one of ours that has no FORMAT yet. The manifest is there before FORMAT says so.
func (l *Log) beginDirectory(holdsData bool) error {
	holdsManifest := false
	if !holdsData {
		switch e, _, err := l.readManifest(); {
		case err == nil:
			holdsManifest = e.newest > 0 // else the last attempt to begin came no further
		case !errors.As(err, new(*MissingError)):
			return err
		}
	}
	if holdsData || holdsManifest {
		return &MissingError{File: l.path(formatName), Reason: "the directory holds data"}
	}
	if err := l.createManifest(entry{}); err != nil {
		return err
	}
	if err := l.writeFormat(); err != nil {
		return err
	}
	return l.openManifest()
}

// beginFirst begins the first segment of a directory that has none.
func (l *Log) beginFirst(known entry) error {
	switch {
	case known.newest > 0:
		return &MissingError{
			File: l.path(segmentName(known.newest)), Reason: fmt.Sprintf("the log reached revision %d, and no segment (*.log) is there", known.end),
		}
	case l.checkpoint > 0:
		return fmt.Errorf("there is %s, but no segment (*.log): files are missing", checkpointName(l.checkpoint))
	}
	return l.begin(&segment{after: firstRevision, previous: -1, end: firstRevision}, nil)
}

// upgrade gives a directory of formatNoManifest its manifest. The first entry knows nothing yet, as before; FORMAT
// requires the manifest only once that says what the directory holds.
func (l *Log) upgrade() error {
	var e entry
	l.describe(&e)
	if err := l.createManifest(e); err != nil {
		return err
	}
	if err := l.writeFormat(); err != nil {
		return err
	}
	l.logger.Info("the data directory has been brought to a newer format", "directory", l.dir, "format", formatVersion)
	return l.openManifest()
}

// describe sets an entry to what the log consists of. Nobody else uses the log meanwhile.
func (l *Log) describe(e *entry) {
	last := l.segments[len(l.segments)-1]
	e.checkpoint, e.oldest, e.newest, e.end = l.checkpoint, l.segments[0].after, last.after, last.end
}

// makeDir makes the directory, durably, when it is not there.
func (l *Log) makeDir() error {
	var made []string
	for dir := l.dir; ; dir = l.fs.PathDir(dir) {
		if _, err := l.fs.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) || dir == l.fs.PathDir(dir) {
			break
		}
		made = append(made, dir)
	}
	if err := l.fs.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	for _, dir := range made {
		if err := l.syncDir(l.fs.PathDir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// readFormat reads the version of the directory: one that we know, or 0 where there is none.
func (l *Log) readFormat() (int, error) {
	f, err := l.fs.Open(l.path(formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	text, ok := strings.CutPrefix(string(content), formatMagic)
	version, err := strconv.Atoi(strings.TrimSpace(text))
	if !ok || err != nil {
		return 0, &DamageError{File: l.path(formatName), Reason: fmt.Sprintf("it should say %q and a number", formatMagic)}
	}
	if version < formatNoManifest || version > formatVersion {
		return 0, fmt.Errorf("its file FORMAT says format %d; this version reads formats %d to %d", version, formatNoManifest, formatVersion)
	}
	return version, nil
}

func (l *Log) writeFormat() error {
	f, err := l.fs.Create(l.path(formatName+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", formatMagic, formatVersion)
	return l.install(f, formatName, err)
}

// install syncs and closes a new file and gives it its name, unless something went wrong with it.
func (l *Log) install(f vfs.File, name string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = l.rename(name)
	}
	if err != nil {
		return errors.Join(err, l.discard(name))
	}
	return nil
}

func (l *Log) rename(name string) error {
	if err := l.fs.Rename(l.path(name+tmpSuffix), l.path(name)); err != nil {
		return err
	}
	return l.syncDir(l.dir)
}

// discard removes a file that did not get its name.
func (l *Log) discard(name string) error {
	err := l.fs.Remove(l.path(name + tmpSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list returns what is in the directory, in order, and the files that a crash left unfinished.
func (l *Log) list() (segments, checkpoints []int64, unfinished []string, err error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range names {
		finished, isTmp := strings.CutSuffix(name, tmpSuffix)
		revision, kind, ok := parseName(finished)
		switch {
		case isTmp && (ok || finished == formatName || finished == manifestName):
			unfinished = append(unfinished, name)
		case ok && kind == "log":
			segments = append(segments, revision)
		case ok && kind == "base":
			checkpoints = append(checkpoints, revision)
		}
	}
	slices.Sort(segments)
	slices.Sort(checkpoints)
	return segments, checkpoints, unfinished, nil
}

// link chains the segments, from the last one back to the first one whose predecessor is gone.
func (l *Log) link(there []int64, known entry) error {
	next := there[len(there)-1]
	if next < known.newest {
		return &MissingError{
			File:   l.path(segmentName(known.newest)),
			Reason: fmt.Sprintf("the log reached revision %d, and %s is the newest segment that is there", known.end, segmentName(next)),
		}
	}
	for {
		s, err := l.readHeader(next)
		if err != nil {
			return err
		}
		if len(l.segments) > 0 {
			s.end = l.segments[0].after
			if s.end < s.after {
				return &DamageError{File: l.path(segmentName(s.end)), Reason: "it does not follow " + segmentName(s.after)}
			}
		}
		l.segments = append([]*segment{s}, l.segments...)
		if s.previous < 0 || !slices.Contains(there, s.previous) {
			return l.checkStart(s, known)
		}
		next = s.previous
	}
}

// checkStart says whether the state can be made from the segments, of which s is the oldest one, and the checkpoint.
func (l *Log) checkStart(s *segment, known entry) error {
	complete := s.after <= max(l.checkpoint, firstRevision)
	switch {
	case !complete && known.checkpoint > l.checkpoint:
		return &MissingError{
			File: l.path(checkpointName(known.checkpoint)), Reason: fmt.Sprintf("the oldest segment that is there, %s, does not begin before it", segmentName(s.after)),
		}
	case !complete:
		return &MissingError{
			File: l.path(segmentName(s.previous)), Reason: fmt.Sprintf("%s follows it, and there is no checkpoint (*.base) in its place", segmentName(s.after)),
		}
	case known.checkpoint > l.checkpoint:
		l.logger.Warn("a checkpoint is missing; the segments hold all that it did", "file", l.path(checkpointName(known.checkpoint)))
	}
	if known.oldest > 0 && s.after > known.oldest {
		l.logger.Warn("segments are missing that held nothing but history; watches begin later than they could",
			"file", l.path(segmentName(s.previous)), "history", s.after)
	}
	return nil
}

// The payload of the first frame of a file.
const (
	segmentMagic    = "PLINTH-S"
	checkpointMagic = "PLINTH-B"
)

func appendFileHeader(b []byte, magic string, numbers ...int64) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, magic...), fileFormatVersion)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// parseFileHeader reads what appendFileHeader wrote.
func parseFileHeader(file string, header []byte, magic string, numbers ...*int64) error {
	b, ok := bytes.CutPrefix(header, []byte(magic))
	if !ok || len(b) < 4 {
		return &DamageError{File: file, Reason: "it does not begin as a file of its name"}
	}
	if version := binary.LittleEndian.Uint32(b); version != fileFormatVersion {
		return fmt.Errorf("%s has format %d; this version reads and writes format %d", file, version, fileFormatVersion)
	}
	if b = b[4:]; len(b) != 8*len(numbers) {
		return &DamageError{File: file, Reason: "its header is too short or too long"}
	}
	for i, n := range numbers {
		*n = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}

// readHeader reads the first frame of a segment. It was synced before the file got its name, so it must be there.
func (l *Log) readHeader(after int64) (*segment, error) {
	file := l.path(segmentName(after))
	f, err := l.fs.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	first, err := newReader(f, 0, blockSize).next()
	if err == io.EOF || err == errBroken {
		return nil, &DamageError{File: file, Reason: "its first frame does not read back"}
	}
	if err != nil {
		return nil, err
	}
	s := &segment{}
	if err := parseFileHeader(file, first.payload, segmentMagic, &s.after, &s.previous); err != nil {
		return nil, err
	}
	if s.after != after || s.previous >= after {
		return nil, &DamageError{File: file, Reason: fmt.Sprintf("its header says that it follows %d, and that one %d", s.after, s.previous)}
	}
	return s, s.stat(f)
}

func (s *segment) stat(f vfs.File) error {
	info, err := f.Stat()
	if err == nil {
		s.size = info.Size()
	}
	return err
}

// removeStale removes files that a crash left or brought back, or that a Compact had no time for. That is done last:
// as long as something is missing, every file that is there may be of use to somebody.
func (l *Log) removeStale(segments, checkpoints []int64, unfinished []string) error {
	names := unfinished
	for _, revision := range checkpoints {
		if revision != l.checkpoint {
			names = append(names, checkpointName(revision))
		}
	}
	for _, after := range segments {
		if after < l.segments[0].after {
			names = append(names, segmentName(after))
		}
	}
	for _, name := range names {
		// An unfinished file may have got its name meanwhile.
		if err := l.fs.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// private makes files for nobody but their owner.
type private struct{ vfs.FS }

func (p private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (p private) Lock(name string) (io.Closer, error) {
	c, err := p.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
