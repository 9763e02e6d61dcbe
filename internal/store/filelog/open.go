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

	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is the version of everything in the directory; docs/formats.md describes it.
const formatVersion = 1

const (
	formatName  = "FORMAT"
	formatMagic = "plinth data "
	lockName    = "LOCK"
	tmpSuffix   = ".tmp"
)

// firstRevision is that of an empty store: the first commit is the one behind it.
const firstRevision = 1

func segmentName(after int64) string { return fmt.Sprintf("%020d.log", after) }
func baseName(revision int64) string { return fmt.Sprintf("%020d.base", revision) }

// parseName splits the name of a segment or base.
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
		return err
	}
	l.lock = lock
	if err := l.checkFormat(); err != nil {
		return err
	}
	segments, bases, err := l.list()
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		if len(bases) > 0 {
			return fmt.Errorf("there is %s, but no segment (*.log): files are missing", baseName(bases[len(bases)-1]))
		}
		return l.begin(&segment{after: firstRevision, previous: -1, end: firstRevision}, nil)
	}
	if len(bases) > 0 {
		l.base = bases[len(bases)-1]
	}
	if err := l.link(segments); err != nil {
		return err
	}
	if err := l.recoverLast(); err != nil {
		return err
	}
	if end := l.segments[len(l.segments)-1].end; l.base > end {
		return fmt.Errorf("%s is newer than the last commit, %d: a segment (*.log) is missing", baseName(l.base), end)
	}
	return l.removeStale(segments, bases)
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

// checkFormat reads the version of the directory, or writes it into a new one.
func (l *Log) checkFormat() error {
	f, err := l.fs.Open(l.path(formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return l.writeFormat()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	text, ok := strings.CutPrefix(string(content), formatMagic)
	version, err := strconv.Atoi(strings.TrimSpace(text))
	if !ok || err != nil {
		return &DamageError{File: l.path(formatName), Reason: fmt.Sprintf("it should say %q and a number", formatMagic)}
	}
	if version != formatVersion {
		return fmt.Errorf("its file FORMAT says format %d; this version reads and writes format %d", version, formatVersion)
	}
	return nil
}

func (l *Log) writeFormat() error {
	segments, bases, err := l.list()
	if err != nil {
		return err
	}
	if len(segments)+len(bases) > 0 {
		return &DamageError{File: l.path(formatName), Reason: "it is missing, though the directory holds data"}
	}
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

// list returns what is in the directory, in order, and removes what a crash left unfinished.
func (l *Log) list() (segments, bases []int64, err error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		finished, unfinished := strings.CutSuffix(name, tmpSuffix)
		revision, kind, ok := parseName(finished)
		switch {
		case unfinished && (ok || finished == formatName):
			if err := l.fs.Remove(l.path(name)); err != nil {
				return nil, nil, err
			}
		case ok && kind == "log":
			segments = append(segments, revision)
		case ok && kind == "base":
			bases = append(bases, revision)
		}
	}
	slices.Sort(segments)
	slices.Sort(bases)
	return segments, bases, nil
}

// link chains the segments, from the last one back to the first one whose predecessor is gone.
func (l *Log) link(there []int64) error {
	next := there[len(there)-1]
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
		if s.previous < 0 {
			return nil
		}
		if !slices.Contains(there, s.previous) {
			if s.after > max(l.base, firstRevision) {
				return fmt.Errorf("%s, which comes before %s, is missing, and so is a base (*.base) in its place", segmentName(s.previous), segmentName(s.after))
			}
			return nil
		}
		next = s.previous
	}
}

// The payload of the first frame of a file.
const (
	segmentMagic = "PLINTH-S"
	baseMagic    = "PLINTH-B"
)

func appendFileHeader(b []byte, magic string, numbers ...int64) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, magic...), formatVersion)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// parseFileHeader returns the numbers in the first frame of a file.
func parseFileHeader(file string, f frame, magic string, numbers ...*int64) error {
	b, ok := bytes.CutPrefix(f.payload, []byte(magic))
	if !ok || len(b) < 4 {
		return &DamageError{File: file, Reason: "it does not begin as a file of its name"}
	}
	if version := binary.LittleEndian.Uint32(b); version != formatVersion {
		return fmt.Errorf("%s has format %d; this version reads and writes format %d", file, version, formatVersion)
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
	if err := parseFileHeader(file, first, segmentMagic, &s.after, &s.previous); err != nil {
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

// removeStale removes files that a crash brought back or that a Compact had no time for.
func (l *Log) removeStale(segments, bases []int64) error {
	for _, revision := range bases {
		if revision != l.base {
			if err := l.fs.Remove(l.path(baseName(revision))); err != nil {
				return err
			}
		}
	}
	for _, after := range segments {
		if after < l.segments[0].after {
			if err := l.fs.Remove(l.path(segmentName(after))); err != nil {
				return err
			}
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
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
