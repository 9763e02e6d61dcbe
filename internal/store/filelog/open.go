package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/durable"
	"plinth/internal/invariants"
	"plinth/internal/occupant"
	"plinth/internal/store"
)

// Format is the version of the directories that this package writes.
const Format = formatVersion

// The versions of the format, which docs/formats.md specifies.
const (
	formatVersion     = 3 // of the directory, in its file FORMAT
	oldestFormat      = 2 // that is read
	fileFormatVersion = 1 // in the headers of files
)

const (
	formatName  = "FORMAT"
	formatMagic = "plinth data "
	lockName    = "LOCK" // diskFS makes no such file: it locks the directory
	tmpSuffix   = ".tmp"
)

// firstRevision is that of an empty store: the first commit is the one after it.
const firstRevision = store.FirstRevision

func segmentName(after int64) string       { return fmt.Sprintf("%020d.log", after) }
func checkpointName(revision int64) string { return fmt.Sprintf("%020d.base", revision) }

// parseName splits the name of a segment or checkpoint into its revision and its extension. Names have 20 digits, so
// that they sort by revision.
func parseName(name string) (revision int64, kind string, ok bool) {
	number, kind, ok := strings.Cut(name, ".")
	if !ok || len(number) != 20 {
		return 0, "", false
	}
	revision, err := strconv.ParseInt(number, 10, 64)
	return revision, kind, err == nil
}

// open brings the directory into the state in which a clean Close leaves it, and opens the segment to write to.
//
// The problem: open has to handle the remains of any crash, without an operator. It may rely on little: content that
// was synced exists, and a name that was created before a sync of its directory exists. Everything else, an unsynced
// write, a name that was created or removed without a sync, may exist or not, in any combination. So the directory can
// be in these states:
//
//	crash during            leaves                                                     open
//	the first open          no FORMAT, and no data, or a MANIFEST without files        begins again (beginDirectory)
//	Append, before sync     frames that were not acknowledged, whole or torn           keeps or drops them (recoverLast)
//	Append, no room         a segment that ends with such frames                       the same
//	Append, after sync      a manifest that is behind the frames                       reads the frames
//	roll                    a new segment without a commit; or its .tmp file           continues it; or removes it
//	Compact, checkpoint     a .tmp file                                                removes it
//	open, older format      FORMAT of either format; and its .tmp file                 reads both
//	Compact, removal        old segments, an old checkpoint                            removes them (removeStale)
//	open itself             one of the above                                           the same again
//
// Every other combination is damage or a missing file, and an error.
//
// It may be interrupted anywhere and run again, so each step leaves a directory that opens, with the same commits:
//
//   - lock the directory, before anything in it is read;
//   - read FORMAT and MANIFEST, or begin a new directory;
//   - chain the segments, and check that together with the checkpoint they are complete by the manifest;
//   - find the end of the last segment, and begin the one to write to;
//   - write the result to the manifest, synced; only then remove the files that are no longer needed.
//
// A directory whose files do not fit together is never repaired: the error names the file, and no file is written or
// removed, so that an operator who has a copy of the file can put it back.
func (l *Log) open() error {
	if err := durable.MkdirAll(l.fs, l.dir); err != nil {
		return err
	}
	lock, err := l.fs.Lock(l.path(lockName))
	if err != nil {
		return lockError(l.dir, err)
	}
	l.lock = lock
	segments, checkpoints, unfinished, err := l.list()
	if err != nil {
		return err
	}
	// The files are listed before FORMAT is read, so that a directory with data, but without FORMAT, is not treated as
	// an empty one.
	version, err := l.readFormat()
	if err != nil {
		return err
	}
	if version != 0 {
		err = l.openManifest()
	} else {
		err = l.beginDirectory(len(segments)+len(checkpoints) > 0)
	}
	if err != nil {
		return err
	}
	// known is the content of the log according to the manifest; the files have to reach as far.
	known := l.manifest.entry
	// Older checkpoints are left over from a Compact that was interrupted.
	if len(checkpoints) > 0 {
		l.checkpoint = checkpoints[len(checkpoints)-1]
	}
	if len(segments) == 0 {
		// No segment: a new directory, or one that lost all of them.
		err = l.beginFirst(known)
	} else if err = l.chain(segments, known); err == nil {
		err = l.recoverLast(known.end)
	}
	if err != nil {
		return err
	}
	if invariants.Enabled {
		l.check()
	}
	// What is written from here on is in the newest format, beside what an earlier version has written; the next
	// checkpoint replaces that. An earlier version refuses the directory by FORMAT, and not by a frame in it.
	if version != 0 && version != formatVersion {
		if err := l.writeFormat(); err != nil {
			return err
		}
	}
	// Synced before any file is removed: until then an older entry may name the files to be removed.
	if err := l.manifest.writeSynced(l.describe); err != nil {
		return err
	}
	return l.removeStale(segments, checkpoints, unfinished)
}

// lockError distinguishes a directory that is open already from one that cannot be locked at all, because it cannot be
// opened or is on a file system without locks. The vfs has no error values for that.
func lockError(dir string, err error) error {
	switch {
	// It could not be opened, and the error has the reason.
	case errors.As(err, new(*fs.PathError)):
		return err
	case errors.Is(err, syscall.EAGAIN):
		if p, ok := occupant.OfLock(dir); ok {
			return fmt.Errorf("%w by %s", ErrLocked, p)
		}
		return fmt.Errorf("%w by another process, or by this one", ErrLocked)
	}
	return fmt.Errorf("it cannot be locked: %w", err)
}

// beginDirectory makes a log of a directory without FORMAT. The manifest is written first: FORMAT promises that there
// is one. A directory that has data, but lost its FORMAT, is refused: a new log beside the old files would look like an
// empty cluster, and every kubelet that sees one stops its Pods.
func (l *Log) beginDirectory(holdsData bool) error {
	holdsManifest := false
	// Without data, the error for a missing manifest is the normal case: a new directory. A damaged manifest is an
	// error.
	if !holdsData {
		switch e, _, err := l.readManifest(l.slotUnread); {
		case err == nil:
			// An entry without a segment is that of an attempt to begin which was interrupted before FORMAT was written.
			holdsManifest = e.newest > 0
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

// beginFirst begins the first segment, unless the manifest or a checkpoint shows that there was one before. Its
// previous is -1: it is the first one.
func (l *Log) beginFirst(known entry) error {
	switch {
	case known.newest > 0:
		return &MissingError{
			File:   l.path(segmentName(known.newest)),
			Reason: fmt.Sprintf("the log reached revision %d, and no segment (*.log) is there", known.end),
		}
	case l.checkpoint > 0:
		return fmt.Errorf("there is %s, but no segment (*.log): files are missing", checkpointName(l.checkpoint))
	}
	return l.begin(&segment{after: firstRevision, previous: -1, end: firstRevision}, nil)
}

// describe sets an entry to the files of the log. The caller has exclusive access.
func (l *Log) describe(e *entry) {
	last := l.segments[len(l.segments)-1]
	e.checkpoint, e.oldest, e.newest, e.end = l.checkpoint, l.segments[0].after, last.after, last.end
}

// readFormat returns the version in FORMAT, 0 without such a file, and an error for an unknown version: an older
// program must not write to a directory of a newer one. There is a version for the directory, in FORMAT, and one in the
// header of each file: the first defines which files exist and how they relate, the second how one file is encoded. Old
// files stay as they are after an upgrade.
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
	// A number alone could be in any file; the magic shows that the file belongs to a log.
	text, ok := strings.CutPrefix(string(content), formatMagic)
	version, err := strconv.Atoi(strings.TrimSpace(text))
	if !ok || err != nil {
		return 0, &DamageError{File: l.path(formatName), Reason: fmt.Sprintf("it should say %q and a number",
			formatMagic)}
	}
	if version < oldestFormat || version > formatVersion {
		advice := "the newer version that has written it reads it"
		if version < oldestFormat {
			advice = "the version that has written it can still serve its objects, to be applied to a server with a new directory"
		}
		return 0, fmt.Errorf("its file FORMAT says format %d; this version reads formats %d to %d: %s", version,
			oldestFormat, formatVersion, advice)
	}
	return version, nil
}

// writeFormat writes FORMAT, which makes the directory one of formatVersion.
func (l *Log) writeFormat() error {
	f, err := l.fs.Create(l.path(formatName+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%d\n", formatMagic, formatVersion)
	return l.install(f, formatName, err)
}

// install syncs and closes a new file, whose name ends in tmpSuffix, and gives it its final name. It is how MANIFEST,
// FORMAT and checkpoints are written; a segment gets its name in the same way, but stays open (create). err is the
// error of writing it, if there was one. A file with a final name is complete, after any crash:
//
//	content synced  →  renamed  →  directory synced
//
// Renaming first would allow a loss of power to leave an empty file with the final name.
func (l *Log) install(f vfs.File, name string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	// Closed before it is renamed, also after an error: the file must not stay open.
	if err = errors.Join(err, f.Close()); err == nil {
		err = l.rename(name)
	}
	if err != nil {
		return errors.Join(err, l.discard(name))
	}
	return nil
}

// rename gives a file that is synced its final name, durably.
func (l *Log) rename(name string) error {
	if err := l.fs.Rename(l.path(name+tmpSuffix), l.path(name)); err != nil {
		return err
	}
	return durable.SyncDir(l.fs, l.dir)
}

// discard removes a file that did not get its final name, so that a failed checkpoint does not keep its space on a disk
// that is full. A crash before that leaves it to removeStale.
func (l *Log) discard(name string) error {
	err := l.fs.Remove(l.path(name + tmpSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list returns the segments and checkpoints in the directory, in order, and the files that a crash left unfinished.
// Files with other names do not belong to the log and are left alone.
func (l *Log) list() (segments, checkpoints []int64, unfinished []string, err error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, name := range names {
		finished, isTmp := strings.CutSuffix(name, tmpSuffix)
		revision, kind, ok := parseName(finished)
		switch {
		// Only files that this package makes are removed later, whatever else ends in tmpSuffix.
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

// chain finds the segments of the log: from the newest one back, each header names the one before it, to the first one
// whose predecessor does not exist. Using all existing segments would include files that were removed and that a crash
// restored: the removal of a name is not synced. The chain itself does not show that the newest segment is missing, so
// the chain is compared with the manifest.
//
// A segment ends where the next one begins; only the end of the last one has to be found by reading it (recoverLast).
// So open reads one block of each older segment, and their frames are checked when they are replayed.
//
// Example: the files begin after 0, 40, 80 and 120, and 120 names 80 as the one before it, and 80 names 40. Compact had
// removed 0 and 40, and a crash restored both names; 40 names 0. All four are a chain, and the log has more history
// than before the crash, which does no harm. If only 0 had been restored, 40 would be missing, the log would consist of
// 80 and 120, and removeStale would remove 0.
func (l *Log) chain(present []int64, known entry) error {
	next := present[len(present)-1]
	if next < known.newest {
		return &MissingError{
			File: l.path(segmentName(known.newest)),
			Reason: fmt.Sprintf("the log reached revision %d, and %s is the newest segment that is there",
				known.end, segmentName(next)),
		}
	}
	for {
		s, err := l.readHeader(next)
		if err != nil {
			return err
		}
		// The segment after this one, which was read before it, begins where this one ends.
		if len(l.segments) > 0 {
			s.end = l.segments[0].after
			if s.end < s.after {
				return &DamageError{File: l.path(segmentName(s.end)),
					Reason: "it does not follow " + segmentName(s.after)}
			}
		}
		l.segments = append([]*segment{s}, l.segments...)
		// The oldest existing one. checkStart decides whether older ones are needed.
		if s.previous < 0 || !slices.Contains(present, s.previous) {
			return l.checkStart(s, known)
		}
		next = s.previous
	}
}

// checkStart checks that the segments, of which s is the oldest, and the checkpoint make a complete state. Missing
// history is a warning.
//
//	complete  ⇔  s.after ≤ max(checkpoint, firstRevision)
//
// If it is not complete, the manifest determines which file the error names: a checkpoint that is newer than the one
// found, or the segment before s.
func (l *Log) checkStart(s *segment, known entry) error {
	complete := s.after <= max(l.checkpoint, firstRevision)
	switch {
	case !complete && known.checkpoint > l.checkpoint:
		return &MissingError{
			File:   l.path(checkpointName(known.checkpoint)),
			Reason: fmt.Sprintf("the oldest segment that is there, %s, does not begin before it", segmentName(s.after)),
		}
	case !complete:
		return &MissingError{
			File:   l.path(segmentName(s.previous)),
			Reason: fmt.Sprintf("%s follows it, and there is no checkpoint (*.base) in its place", segmentName(s.after)),
		}
	case known.checkpoint > l.checkpoint:
		l.logger.Warn("a checkpoint is missing; the segments hold all that it did",
			"file", l.path(checkpointName(known.checkpoint)))
	}
	if known.oldest > 0 && s.after > known.oldest {
		l.logger.Warn("segments are missing that held nothing but history; watches begin later than they could",
			"file", l.path(segmentName(s.previous)), "history", s.after)
	}
	return nil
}

// The payloads of headers begin with these.
const (
	segmentMagic    = "PLINTH-S"
	checkpointMagic = "PLINTH-B"
)

// appendFileHeader appends the payload of the header of a file: the magic, the version of its format, and numbers.
func appendFileHeader(b []byte, magic string, numbers ...int64) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, magic...), fileFormatVersion)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// parseFileHeader parses a header that appendFileHeader wrote, with as many numbers.
func parseFileHeader(file string, header []byte, magic string, numbers ...*int64) error {
	b, ok := bytes.CutPrefix(header, []byte(magic))
	if !ok || len(b) < 4 {
		return &DamageError{File: file, Reason: "it does not begin as a file of its name"}
	}
	// Not damage: a newer program may have written the file.
	if version := binary.LittleEndian.Uint32(b); version != fileFormatVersion {
		return fmt.Errorf("%s has format %d; this version reads and writes format %d",
			file, version, fileFormatVersion)
	}
	if b = b[4:]; len(b) != 8*len(numbers) {
		return &DamageError{File: file, Reason: "its header is too short or too long"}
	}
	for i, n := range numbers {
		*n = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}

// readHeader reads the header of a segment. It was synced before the file got its name, so it has to read back: a crash
// cannot be the reason if it does not.
func (l *Log) readHeader(after int64) (*segment, error) {
	file := l.path(segmentName(after))
	f, err := l.fs.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One block is enough: a header is short and at the beginning.
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
	// A file that was renamed by hand, or copied over another one.
	if s.after != after || s.previous >= after {
		return nil, &DamageError{File: file, Reason: fmt.Sprintf("its header says that it follows %d, and that one %d",
			s.after, s.previous)}
	}
	return s, s.stat(f)
}

// stat sets the size of a segment from its file. That of the last one includes preallocated zeros.
func (s *segment) stat(f vfs.File) error {
	info, err := f.Stat()
	if err == nil {
		s.size = info.Size()
	}
	return err
}

// removeStale removes files that a crash left or restored, or that an interrupted Compact did not remove. It runs last:
// as long as a file is missing, every other one may help to repair the log.
func (l *Log) removeStale(segments, checkpoints []int64, unfinished []string) error {
	names := unfinished
	for _, revision := range checkpoints {
		// The newest checkpoint has all that older ones have.
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
		// It does not exist if its write was completed meanwhile, as that of FORMAT.
		if err := l.fs.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// diskFS is the file system of the operating system. Files are private: they hold Secrets.
type diskFS struct{ vfs.FS }
