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

	"plinth/internal/invariants"
)

// manifest is the file MANIFEST: the names of the files of the log, and the revision up to which it is synced.
//
// The problem: each segment names the one before it, so a segment that is missing in the middle is noticed. But no file
// names the newest segment, and the segment itself does not record where it ended: a log that lost its newest segment,
// or the end of it after a whole frame, looks like a log that never was longer, and acknowledged commits would be lost
// silently. The manifest records both, as each of its entries is written after the data that it describes was synced.
// At any time, and after any crash:
//
//	end    ≤ the newest synced commit
//	newest ≤ the newest segment whose name is synced
//	oldest ≤ newest ≤ end,  checkpoint ≤ end
//	sequence, newest and end never decrease
//
// So a log that ends before the entry has lost commits. The entry may be older than the log: the commits after it are
// found by the frames, and the segments after it by their names.
//
// How it is written: an entry is due after the sync of every batch of commits, and a separate sync for it would halve
// the throughput. A file that is replaced by renaming has to be synced first, or a loss of power leaves it empty. So
// entries are overwritten in place, in one of three slots that are a page apart: synced entries in slots 0 and 1 in
// turn, unsynced ones in slot 2. A loss of power may tear slot 2, and that one of the others which was being written;
// the third is whole. The entry with the highest sequence number and a correct checksum counts. When only the process
// is killed, no entry is lost: the operating system has them.
//
// Example: commits up to 100 were synced, and slot 2 has end = 100. The disk then loses the last frames of the segment,
// commits 99 and 100. Every remaining frame reads back, but the log ends with 98 < 100: Open reports damage. If slot 2
// is lost as well, because it was being written when power was lost, slots 0 and 1 have a lower end; then the synced
// offsets of later frames are the only evidence, which is enough for all but the end of the log.
type manifest struct {
	// mu guards all of it: Append and Compact write entries concurrently, each from the newest one in memory, so that
	// neither writes back what the other has changed.
	mu     sync.Mutex
	file   vfs.File
	turn   int    // the slot of the next synced entry: 0 or 1
	buffer []byte // scratch, for encoding an entry
	entry
}

// entry is the content of a slot. Its 56 bytes are within one sector, but a disk need not write a sector as a whole, so
// there is a checksum:
//
//	"PLINTH-M"   version 4   sequence 8   checkpoint 8   oldest 8   newest 8   end 8   CRC-32C 4
type entry struct {
	sequence   int64 // number of the entry; it grows over the life of the directory
	checkpoint int64 // revision of the checkpoint; 0: none
	oldest     int64 // the oldest segment that was not removed, by the revision before its first one
	newest     int64 // the newest segment, likewise; 0: none yet
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

// numbers are the fields in the order in which they are stored.
func (e *entry) numbers() []*int64 {
	return []*int64{&e.sequence, &e.checkpoint, &e.oldest, &e.newest, &e.end}
}

// encode overwrites b with the entry and its checksum.
func (e *entry) encode(b []byte) []byte {
	b = appendFileHeader(b[:0], manifestMagic, e.sequence, e.checkpoint, e.oldest, e.newest, e.end)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseEntry parses a slot. ok is false if the entry was torn or is damaged, and for an entry of a later format;
// FORMAT has refused such a directory before.
func parseEntry(b []byte) (entry, bool) {
	var e entry
	// The file is shorter than its slots, which a crash cannot make it: it was synced before it got its name.
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

// readManifest returns the newest entry that reads back, and the slot for the next synced entry: of slots 0 and 1 the
// one with the older entry, so that the newer one stays whole if power is lost during that write. One slot that does
// not read back is normal after a crash; if none does, the manifest is damaged.
//
// unread is called with the offset of each slot that does not read back.
func (l *Log) readManifest(unread func(offset int)) (newest entry, turn int, err error) {
	file := l.path(manifestName)
	f, err := l.fs.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newest, 0, &MissingError{File: file,
			Reason: "without it, a missing file could not be noticed"}
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
		e, ok := parseEntry(content[min(len(content), slot*slotSize):])
		if !ok {
			unread(slot * slotSize)
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

func (l *Log) slotUnread(offset int) {
	l.logger.Warn(
		"an entry of the manifest does not read back and is ignored, as after a loss of power while it was written",
		"file", l.path(manifestName), "offset", offset)
}

// createManifest writes a manifest with the same entry in all slots. It replaces an existing one, by renaming: it is
// called only when there is no entry that a crash could lose.
func (l *Log) createManifest(e entry) error {
	f, err := l.fs.Create(l.path(manifestName+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(manifestOf(e))
	return l.install(f, manifestName, err)
}

// manifestOf is the content of a manifest with the same entry in all slots.
func manifestOf(e entry) []byte {
	var b bytes.Buffer
	for slot := range slots {
		e.sequence = int64(slot) + 1
		b.Write(append(e.encode(nil), make([]byte, slotSize-entrySize)...))
	}
	return b.Bytes()
}

// openManifest opens the manifest for writing.
func (l *Log) openManifest() error {
	read, turn, err := l.readManifest(l.slotUnread)
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

// writeUnsynced writes a changed entry, and leaves it to the operating system when it reaches the disk.
func (m *manifest) writeUnsynced(change func(*entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(unsyncedSlot, change)
}

// writeSynced writes a changed entry and syncs it.
func (m *manifest) writeSynced(change func(*entry)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.write(m.turn, change); err != nil {
		return err
	}
	m.turn = 1 - m.turn
	return m.file.SyncData()
}

// write changes the entry in memory and writes it to a slot, under the next sequence number. The caller holds mu.
func (m *manifest) write(slot int, change func(*entry)) error {
	before := m.entry
	change(&m.entry)
	m.sequence++
	if e := &m.entry; invariants.Enabled && e.newest > 0 &&
		(e.oldest > e.newest || e.newest > e.end || e.checkpoint > e.end ||
			e.newest < before.newest || e.end < before.end) {
		invariants.Fail("filelog: entry %+v of the manifest follows %+v", *e, before)
	}
	m.buffer = m.encode(m.buffer)
	_, err := m.file.WriteAt(m.buffer, int64(slot)*slotSize)
	return err
}
