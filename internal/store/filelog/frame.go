package filelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/invariants"
)

// The types of frames.
const (
	frameSegment    = 1 // the header of a segment
	frameCommit     = 2
	frameCheckpoint = 4 // the header of a checkpoint
	framePart       = 5 // a part of a checkpoint
	frameEnd        = 6 // the end of a checkpoint; its synced offset is the number of parts before it
)

// Every frame begins with its type, the offset up to which the file was synced when the frame was written, and a
// revision: that of the commit, or of the newest one before the frame. In bytes, little-endian:
//
//	type 1   synced offset 8   revision 8   payload
//
// The three are in the header, and not in the payload, so that recoverLast and a reader that skips commits need not
// know payloads. The whole frame is one record of the record format, which splits it into chunks with checksums.
const frameHeader = 1 + 8 + 8

// putHeader writes the header of a frame.
func putHeader(b []byte, kind byte, synced, revision int64) {
	b[0] = kind
	binary.LittleEndian.PutUint64(b[1:], uint64(synced))
	binary.LittleEndian.PutUint64(b[9:], uint64(revision))
}

// preallocateStep is how many bytes of a segment are filled with zeros ahead of the written part. A sync of a file that
// keeps its size takes half the time: the file system has no metadata to write to its journal.
const preallocateStep = 512 << 10

var zeros [64 << 10]byte

// writer appends frames to one file. It is used by one goroutine at a time: the one that holds Log.appending, or the
// one that writes a checkpoint.
//
//	synced ≤ size();  the synced offset of each frame ≤ the offset of that frame
//	size() ≤ zeroed, or no zeros are left
//	segment.end ≤ written
//
// All frames of one batch are written before its sync, so they have the same synced offset: the end of the batch
// before. From it recoverLast concludes that everything before that offset was synced, and may have been acknowledged.
type writer struct {
	segment *segment // nil for a checkpoint
	path    string
	info    vfs.FileInfo // of the file, to recognize it (inPlace)
	file    vfs.File
	records *record.Writer
	step    int64 // how many bytes to preallocate at once
	zeroed  int64 // the file has zeros from size() up to here
	synced  int64 // the file is synced up to here
	written int64 // revision of the last frame
	// The index of the written commits; publishIndex gives it to readers after the sync.
	index  sparseIndex
	header [frameHeader]byte
}

// newWriter begins a file.
func newWriter(f vfs.File) *writer { return &writer{file: f, records: record.NewWriter(f)} }

// size is how much was written, without the preallocated zeros.
func (w *writer) size() int64 { return w.records.Size() }

// frame appends one frame, a record of the format. It stays in the writer's block buffer until the block is full or
// flushed.
func (w *writer) frame(kind byte, synced, revision int64, payload []byte) error {
	r, err := w.records.Next()
	if err != nil {
		return err
	}
	putHeader(w.header[:], kind, synced, revision)
	if _, err := r.Write(w.header[:]); err != nil {
		return err
	}
	_, err = r.Write(payload)
	return err
}

// commit appends the frame of one commit, which has the revisions from first to last.
func (w *writer) commit(first, last int64, payload []byte) error {
	if invariants.Enabled && (first != w.written+1 || last < first || w.synced > w.size()) {
		invariants.Fail("filelog: commit %d to %d is written after %d, at %d, synced up to %d", first, last,
			w.written, w.size(), w.synced)
	}
	// The file is extended before the frame is written, not after: the sync then finds a file of unchanged size.
	w.index.add(w.size(), first)
	w.preallocate(w.size() + int64(len(payload)) + 4096)
	if err := w.frame(frameCommit, w.synced, last, payload); err != nil {
		return err
	}
	w.written = last
	return nil
}

// preallocate writes zeros ahead of the written part if there are none up to upTo. They begin at a page boundary, not
// before size(): written bytes are never overwritten. Zeros are not a frame, and checkBroken distinguishes them from an
// unfinished write. An error is ignored: if the disk has no space for the zeros, the write itself may still succeed.
func (w *writer) preallocate(upTo int64) {
	if upTo <= w.zeroed {
		return
	}
	const page = 4 << 10
	at := (max(w.zeroed, w.size()) + page - 1) / page * page
	for end := upTo + w.step; at < end; {
		n := min(int64(len(zeros)), (end-at+page-1)/page*page)
		if _, err := w.file.WriteAt(zeros[:n], at); err != nil {
			return
		}
		at += n
		w.zeroed = at
	}
}

// sync makes the written bytes durable. SyncData leaves out metadata that is not needed to read the file back, such as
// its times.
func (w *writer) sync() error {
	if err := w.records.Flush(); err != nil {
		return err
	}
	if err := w.file.SyncData(); err != nil {
		return err
	}
	w.synced = w.size()
	return nil
}

// publishIndex gives readers the index of the synced commits. The caller holds the log's mu.
func (w *writer) publishIndex() { w.segment.index = w.index }

// sparseIndex finds the offset in a segment at which to start reading. A reader can start at any multiple of the block
// size: it skips the rest of a record that began before. Entry i is the first revision of the first commit that begins
// at or after the offset i × indexStep:
//
//	x[i] ≤ x[i+1]
//	x[i] ≤ r  ⇒  the commit with the revision r begins at or after i × indexStep
//
// If commits 41 to 90 are in the first 64 KiB, and 91 to 120 begin in the second, the index is [41, 91]. A reader of
// the commits after 100 starts at 64 KiB and skips 91 to 100.
//
// An index with an entry for each commit would cost memory for the whole window. This one has 128 entries for a segment
// of 8 MiB, and a reader skips at most 64 KiB before its first commit. Entries are only added, so readers share them
// with the writer: an append to the writer's slice does not change the entries within their length.
type sparseIndex []int64

const indexStep = 64 << 10 // a multiple of blockSize

// add enters a commit that begins at offset. Commits are entered in order.
func (x *sparseIndex) add(offset, first int64) {
	if n := len(*x); invariants.Enabled && n > 0 && int64(n)*indexStep <= offset && (*x)[n-1] > first {
		invariants.Fail("filelog: the index has %d before %d", (*x)[n-1], first)
	}
	for int64(len(*x))*indexStep <= offset {
		*x = append(*x, first)
	}
}

// find returns an offset from which on all commits with revisions greater than after follow: that of the last entry
// that is at most after+1.
func (x sparseIndex) find(after int64) int64 {
	low, high := 0, len(x)
	for low < high {
		mid := (low + high) / 2
		if x[mid] <= after+1 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return int64(max(0, low-1)) * indexStep
}

// follows returns the first revision of the commit in a frame, and an error unless it follows the revision last; -1
// means any. The frame has the last revision of the commit, and the payload the number of its changes. A checksum
// proves that a frame has its original content; this check proves that it is in its original place.
func (f *frame) follows(last int64) (first int64, why error) {
	h, _, err := parseCommitHeader(f.payload)
	switch {
	case err != nil:
		return 0, err
	case h.last != f.revision:
		return 0, fmt.Errorf("the frame of commit %d holds commit %d", f.revision, h.last)
	case last >= 0 && h.first() != last+1:
		return 0, fmt.Errorf("commit %d follows commit %d", h.first(), last)
	}
	return h.first(), nil
}

// frame is one entry read from a file. Its payload is valid until the next frame is read.
type frame struct {
	kind     byte
	offset   int64 // where it begins in the file
	synced   int64 // its synced offset
	revision int64
	payload  []byte
}

// reader reads the frames of one file, with one buffer for all of them.
type reader struct {
	records *record.Reader
	start   int64 // the offset in the file at which records begins
	buffer  []byte
}

// newReader reads a file from start, a multiple of the block size, up to size.
func newReader(f io.ReaderAt, start, size int64) *reader {
	return &reader{records: record.NewReader(io.NewSectionReader(f, start, size-start), 0), start: start}
}

// errBroken means that the frame at the returned offset does not read back: it is cut off, or a checksum is wrong. An
// error of the disk (EIO) is returned as it is: it is not evidence of what was written, and treating it as the end of
// the log would drop commits.
var errBroken = errors.New("frame does not read back")

// next returns the next frame, io.EOF after the last one, or errBroken. The offset is set in any case. The caller
// decides what errBroken means: damage, or the unfinished end of the last write.
func (r *reader) next() (frame, error) {
	f := frame{offset: r.start + r.records.Offset()}
	in, err := r.records.Next()
	if err != nil {
		return f, broken(err)
	}
	b := r.buffer[:0]
	for {
		if cap(b)-len(b) < 4<<10 {
			b = append(make([]byte, 0, 2*cap(b)+32<<10), b...)
		}
		n, err := in.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return f, broken(err)
		}
	}
	if r.buffer = b; cap(b) > 2<<20 {
		r.buffer = nil
	}
	if !f.parse(b) {
		return f, errBroken
	}
	return f, nil
}

// parse sets the frame from the bytes of a record.
func (f *frame) parse(b []byte) bool {
	if len(b) < frameHeader {
		return false
	}
	f.kind = b[0]
	f.synced = int64(binary.LittleEndian.Uint64(b[1:]))
	f.revision = int64(binary.LittleEndian.Uint64(b[9:]))
	f.payload = b[frameHeader:]
	return true
}

// broken translates the errors of the record format for invalid records into errBroken; all others are errors of the
// disk.
func broken(err error) error {
	if errors.Is(err, record.ErrInvalidChunk) || errors.Is(err, record.ErrZeroedChunk) ||
		errors.Is(err, record.ErrUnexpectedEOF) {
		return errBroken
	}
	return err
}

// The record format: blocks of 32 KiB; in them chunks of a checksum, a length, a type and bytes.
const (
	blockSize   = 32 << 10
	chunkHeader = 4 + 2 + 1
	chunkFull   = 1
	chunkFirst  = 2
	chunkMiddle = 3
	chunkLast   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of a chunk: of its type and bytes. The record format stores it masked, as does LevelDB's.
func checksum(b []byte) uint32 { return masked(crc32.Checksum(b, castagnoli)) }

func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

// syncedBeyond says whether a frame after offset has a synced offset beyond it. If so, the bytes at offset had been
// synced, and it is damage that they do not read back.
//
// The record reader cannot find these frames: it follows the lengths of the chunks, and the chunk at offset is broken.
// So every position of each block is tried as the beginning of a chunk. Type, length and frame header are checked
// first, as they rule out most positions; the checksum distinguishes a chunk from bytes that look like one. A full or a
// first chunk is enough: both contain the whole header of their frame if they are long enough, and the last chunks of a
// record have none.
//
// An example: a frame of three chunks begins at offset, and a bit in the length of its first chunk has flipped. The
// reader stops there, although the next frame, of a later Append, is intact, and its synced offset proves that this one
// was synced. Without the search, the damage would look like the unfinished end of a write, and acknowledged commits
// would be dropped silently.
func syncedBeyond(f io.ReaderAt, offset int64) (bool, error) {
	synced, err := greatestSynced(f, offset, offset)
	return synced > offset, err
}

// greatestSynced returns the greatest synced offset of the frames after offset, or the first one beyond enough; -1 if
// there is no frame.
func greatestSynced(f io.ReaderAt, offset, enough int64) (greatest int64, err error) {
	greatest = -1
	block := make([]byte, blockSize)
	var known sums
	// From the block of the offset on: a chunk never crosses a block.
	for start := offset &^ (blockSize - 1); ; start += blockSize {
		n, err := f.ReadAt(block, start)
		if err != nil && err != io.EOF {
			return greatest, err
		}
		b := block[:n]
		known.of(b)
		// The chunk at offset itself, which is the broken one, is left out.
		for i := max(0, int(offset-start)+1); i+chunkHeader+frameHeader <= n; i++ {
			if kind := b[i+6]; kind != chunkFull && kind != chunkFirst {
				continue
			}
			length := int(binary.LittleEndian.Uint16(b[i+4:]))
			end := i + chunkHeader + length
			if length < frameHeader || end > n || b[i+chunkHeader] > frameCommit {
				continue
			}
			synced := int64(binary.LittleEndian.Uint64(b[i+chunkHeader+1:]))
			if synced <= greatest || binary.LittleEndian.Uint32(b[i:]) != known.masked(i+6, end) {
				continue
			}
			if greatest = synced; greatest > enough {
				return greatest, nil
			}
		}
		if n < blockSize {
			return greatest, nil
		}
	}
}
