package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// manifest is the file MANIFEST: which files the log consists of, and up to which revision.
//
// Segments are chained backwards, each names the one before it. So the chain alone cannot tell that the newest
// segment is missing, or that the newest one was cut off behind a whole frame: a shorter log looks like one that
// never was longer. The manifest can, since each of its entries was written after what it tells of was synced. At any
// time, and after any crash,
//
//	entry.end    ≤ the newest commit that is synced
//	entry.newest ≤ the newest segment whose name is synced
//
// so a log that ends before the entry that reads back has lost something. The entry may be older than the log: what
// was written behind it is still found by the chain.
//
// An entry is written after the sync of every batch of commits, and must not cost a sync of its own. A file that is
// replaced by renaming needs one, or a power cut leaves it empty. Entries are therefore written in place, into one of
// three slots a page apart. An entry that is to be synced goes to slot 0 and slot 1 in turn, one that is not goes to
// slot 2. A power cut can tear slot 2, and that one of the others which was being written; the remaining one is
// whole, and the entry with the highest sequence number counts. A killed process loses no entry at all, since the
// operating system has them.
type manifest struct {
	mu     sync.Mutex // Append and Compact write at the same time
	file   vfs.File
	turn   int    // the slot of the next synced entry: 0 or 1
	buffer []byte // of the entry that was written last
	entry
}

// entry is what one slot says.
type entry struct {
	sequence   int64 // of entries, over the life of the directory
	checkpoint int64 // its revision, 0: there is none
	oldest     int64 // the oldest segment that has not been removed, by the revision before its first one
	newest     int64 // the newest segment, likewise; 0: there is none yet
	end        int64 // commits up to this revision are synced
}

const (
	manifestName  = "MANIFEST"
	manifestMagic = "PLINTH-M"
	slotSize      = 4 << 10
	entrySize     = len(manifestMagic) + 4 + 5*8 + 4
	unsyncedSlot  = 2
	slots         = 3
)

func (e *entry) numbers() []*int64 {
	return []*int64{&e.sequence, &e.checkpoint, &e.oldest, &e.newest, &e.end}
}

// encode writes the entry over b.
func (e *entry) encode(b []byte) []byte {
	b = appendFileHeader(b[:0], manifestMagic, e.sequence, e.checkpoint, e.oldest, e.newest, e.end)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeEntry reads a slot. An entry that does not read back was torn, or damaged.
func decodeEntry(b []byte) (entry, bool) {
	var e entry
	if len(b) < entrySize {
		return e, false
	}
	body, sum := b[:entrySize-4], binary.LittleEndian.Uint32(b[entrySize-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return e, false
	}
	ok := parseFileHeader(manifestName, body, manifestMagic, e.numbers()...) == nil
	return e, ok
}

// readManifest returns the newest entry that reads back, and the slot that the next synced entry goes to.
func (l *Log) readManifest() (newest entry, turn int, err error) {
	file := l.path(manifestName)
	f, err := l.fs.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newest, 0, &MissingError{File: file, Reason: "without it nobody knows whether the directory is complete"}
	}
	if err != nil {
		return newest, 0, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return newest, 0, err
	}
	var sequences [slots]int64
	for slot := range slots {
		e, ok := decodeEntry(content[min(len(content), slot*slotSize):])
		if !ok {
			l.logger.Warn("an entry of the manifest does not read back and is ignored, as after a loss of power while it was written",
				"file", file, "offset", slot*slotSize)
			continue
		}
		sequences[slot] = e.sequence
		if e.sequence > newest.sequence {
			newest = e
		}
	}
	if newest.sequence == 0 {
		return newest, 0, &DamageError{File: file, Reason: "none of its entries reads back"}
	}
	if sequences[1] < sequences[0] {
		turn = 1
	}
	return newest, turn, nil
}

// createManifest writes a manifest with the same entry in all slots, in the place of any that is there.
func (l *Log) createManifest(e entry) error {
	f, err := l.fs.Create(l.path(manifestName+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for slot := range slots {
		e.sequence = int64(slot) + 1
		b.Write(append(e.encode(nil), make([]byte, slotSize-entrySize)...))
	}
	_, err = f.Write(b.Bytes())
	return l.install(f, manifestName, err)
}

// openManifest makes the manifest ready to be written.
func (l *Log) openManifest() error {
	read, turn, err := l.readManifest()
	if err != nil {
		return err
	}
	f, err := l.fs.OpenReadWrite(l.path(manifestName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	l.manifest = &manifest{file: f, turn: turn, entry: read}
	return nil
}

// note writes a changed entry and does not wait until it is on the disk.
func (m *manifest) note(change func(*entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(unsyncedSlot, change)
}

// sync writes a changed entry and syncs it.
func (m *manifest) sync(change func(*entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.write(m.turn, change); err != nil {
		return err
	}
	m.turn = 1 - m.turn
	return m.file.SyncData()
}

func (m *manifest) write(slot int, change func(*entry)) error {
	change(&m.entry)
	m.sequence++
	m.buffer = m.encode(m.buffer)
	_, err := m.file.WriteAt(m.buffer, int64(slot)*slotSize)
	return err
}
