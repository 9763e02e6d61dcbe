package past

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/s2"

	"plinth/internal/durable"
	"plinth/internal/execution"
	"plinth/internal/store/delta"
)

// A pack is a file SINCE-UNTIL.pack, both in 20 digits, of:
//
//	blocks    entries in the order of their keys
//	header    CBOR
//	trailer   the offset and the length of the header (8 and 4 bytes), and magic (8)
//
// An entry is the length of its key (uvarint), that of its value, a byte, the key, and the value: as it is if the byte
// is 0, and if it is 1 as its delta (package delta) from the value of the entry before, which is mostly the version
// before of the same object, or that of a similar one. The first of a block, and each deltasInRow-th at least, is as it
// is. A value is read in as many steps as there are deltas before it, and skipped in none.
//
// A block and the header are compressed (S2), and behind each is the CRC-32C of the compressed bytes. Numbers are
// little-endian. An entry is in one block. The header has where each block begins, and with which key, and a hash of
// each object of which the pack has changes, so that most look-ups of others read no block.
//
// A pack is synced before it has its name, and never changes.
const (
	magic        = "PLINTH-P"
	trailerBytes = 8 + 4 + 8
	version      = 1
	// purgedVersion is that of a pack with changes whose versions were purged. Whoever knows version 1 alone would take
	// them for empty ones.
	purgedVersion = 2
	suffix        = ".pack"
	unfinished    = ".tmp" // behind the name of a file that is being written
	blockBytes    = 16 << 10
	deltasInRow   = 16
	// maxBlock bounds what is read of a file that is damaged: a block is one entry at least.
	maxBlock = 64 << 20
)

// header is what is in memory of a pack.
type header struct {
	Version int   `cbor:"1,keyasint"`
	Since   int64 `cbor:"2,keyasint"` // the pack has the changes after Since, up to Until
	Until   int64 `cbor:"3,keyasint"`
	First   int64 `cbor:"4,keyasint"` // the times of the first and the last commit
	Last    int64 `cbor:"5,keyasint"`
	Raw     int64 `cbor:"6,keyasint"` // the bytes of the entries
	Entries int64 `cbor:"7,keyasint"`
	// Without are resources of which the pack has no changes.
	Without []string `cbor:"8,keyasint,omitempty"`
	// Offsets are those of the blocks and, last, of the header, and Keys the first key of each block.
	Offsets []int64  `cbor:"9,keyasint"`
	Keys    [][]byte `cbor:"10,keyasint,omitempty"`
	// Objects are the hashes of the objects that have changes, ascending, four bytes each.
	Objects []byte `cbor:"11,keyasint,omitempty"`
}

// pack is an open pack.
type pack struct {
	header
	file  vfs.File
	size  int64
	users atomic.Int64  // those who read it, and the Log while it is in its list
	gone  func() error  // removes the file; set when it is taken out of the list
	ended chan struct{} // closed when the last one of users has released it
}

// DamageError names the file that cannot be read.
type DamageError struct {
	File   string
	Offset int64
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// spanOf is what the name of a pack says; false: it is none.
func spanOf(name string) (h header, ok bool) {
	_, err := fmt.Sscanf(name, "%d-%d"+suffix, &h.Since, &h.Until)
	return h, err == nil && h.name() == name
}

func (h *header) name() string { return fmt.Sprintf("%020d-%020d%s", h.Since, h.Until, suffix) }

// release ends the use of the pack. The last one closes its file, and removes it if the pack was taken out: an open
// file cannot be removed everywhere.
func (p *pack) release() error {
	if p.users.Add(-1) > 0 {
		return nil
	}
	err := p.file.Close()
	if p.gone != nil {
		err = errors.Join(err, p.gone())
	}
	close(p.ended)
	return err
}

// create writes a pack with entries in the order of their keys, and opens it.
func (l *Log) create(h header, entries func(func(entry, error) bool)) (*pack, error) {
	return l.install(h, func(w *packWriter) error {
		for e, err := range entries {
			if err == nil {
				err = w.add(e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// install writes a pack with what content writes, in the place of one of the same name, if there is one, and opens it.
func (l *Log) install(h header, content func(*packWriter) error) (*pack, error) {
	path := l.path(h.name())
	err := l.fill(path+unfinished, &h, content)
	if err == nil {
		err = l.o.FS.Rename(path+unfinished, path)
	}
	if err == nil {
		err = durable.SyncDir(l.o.FS, l.dir)
	}
	if err != nil {
		return nil, errors.Join(err, durable.IgnoreMissing(l.o.FS.Remove(path+unfinished)))
	}
	return l.openPack(h.name())
}

// fill writes the file of a pack.
func (l *Log) fill(path string, h *header, content func(*packWriter) error) (err error) {
	file, err := l.o.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := packWriter{file: file, header: h}
	h.Version = max(h.Version, version)
	if err := content(&w); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	return file.Sync()
}

type packWriter struct {
	*header
	file   io.Writer
	offset int64
	block  []byte
	first  []byte // the key with which the block begins
	last   []byte // the object of the last entry
	hashes []uint32
	buffer []byte
	value  []byte // of the last entry; empty: the next one is as it is
	row    int    // the deltas since the last one that is as it is
	delta  []byte
}

func (w *packWriter) add(e entry) error {
	if len(w.block) == 0 {
		w.first = slices.Clone(e.key)
	}
	if object := objectOf(e.key); e.key[0] == sortChange && !bytes.Equal(object, w.last) {
		w.last = slices.Clone(object)
		w.hashes = append(w.hashes, hashOf(object))
	}
	value, isDelta := w.deltaOf(e.value)
	w.block = binary.AppendUvarint(w.block, uint64(len(e.key)))
	w.block = binary.AppendUvarint(w.block, uint64(len(value)))
	w.block = append(append(append(w.block, isDelta), e.key...), value...)
	w.Raw += int64(len(e.key) + len(e.value))
	w.Entries++
	if len(w.block) < blockBytes {
		return nil
	}
	return w.endBlock()
}

// deltaOf is a value as the block has it, and the byte before it.
func (w *packWriter) deltaOf(value []byte) (as []byte, isDelta byte) {
	ok := false
	if w.row++; len(w.value) > 0 && w.row < deltasInRow {
		w.delta, ok = delta.Append(w.delta[:0], w.value, value, len(value)/2)
	}
	w.value = append(w.value[:0], value...)
	if ok {
		return w.delta, 1
	}
	w.row = 0
	return value, 0
}

func hashOf(object []byte) uint32 { return crc32.Checksum(object, castagnoli) }

func (w *packWriter) endBlock() error {
	if len(w.block) == 0 {
		return nil
	}
	w.Offsets, w.Keys = append(w.Offsets, w.offset), append(w.Keys, w.first)
	err := w.compressed(w.block)
	w.block, w.value = w.block[:0], w.value[:0]
	return err
}

// compressed writes bytes, and their checksum.
func (w *packWriter) compressed(b []byte) error {
	w.buffer = s2.Encode(w.buffer[:cap(w.buffer)], b)
	w.buffer = binary.LittleEndian.AppendUint32(w.buffer, crc32.Checksum(w.buffer, castagnoli))
	n, err := w.file.Write(w.buffer)
	w.offset += int64(n)
	return err
}

func (w *packWriter) finish() error {
	if err := w.endBlock(); err != nil {
		return err
	}
	w.Offsets = append(w.Offsets, w.offset)
	if w.Objects == nil {
		slices.Sort(w.hashes)
		w.Objects = make([]byte, 0, 4*len(w.hashes))
		for _, h := range slices.Compact(w.hashes) {
			w.Objects = binary.LittleEndian.AppendUint32(w.Objects, h)
		}
	}
	text, err := cbor.Marshal(w.header)
	if err != nil {
		return err
	}
	at := w.offset
	if err := w.compressed(text); err != nil {
		return err
	}
	trailer := binary.LittleEndian.AppendUint64(nil, uint64(at))
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(w.offset-at))
	_, err = w.file.Write(append(trailer, magic...))
	return err
}

// openPack opens a pack. Its blocks are read when they are needed.
func (l *Log) openPack(name string) (*pack, error) {
	file, err := l.o.FS.Open(l.path(name))
	if err != nil {
		return nil, err
	}
	p, err := l.packOf(file, name)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return p, nil
}

func (l *Log) packOf(file vfs.File, name string) (*pack, error) {
	p := &pack{file: file, ended: make(chan struct{})}
	p.users.Store(1)
	info, err := p.file.Stat()
	if err != nil {
		return nil, err
	}
	p.size = info.Size()
	damaged := func(at int64, reason string) (*pack, error) { return nil, &DamageError{l.path(name), at, reason} }
	trailer := make([]byte, trailerBytes)
	if p.size < trailerBytes {
		return damaged(p.size, "it is too short")
	}
	if _, err := p.file.ReadAt(trailer, p.size-trailerBytes); err != nil {
		return nil, err
	}
	at, length := binary.LittleEndian.Uint64(trailer), binary.LittleEndian.Uint32(trailer[8:])
	if string(trailer[12:]) != magic || at > uint64(p.size) || int64(at)+int64(length)+trailerBytes != p.size {
		return damaged(p.size-trailerBytes, "it has no end")
	}
	text, err := p.read(l.ctx, int64(at), int64(length), new(blockBuffers))
	if err != nil {
		return nil, l.named(err, name)
	}
	if err := cbor.Unmarshal(text, &p.header); err != nil {
		return damaged(int64(at), err.Error())
	}
	switch n := len(p.Offsets); {
	case p.Version != version && p.Version != purgedVersion:
		return nil, fmt.Errorf("%s is of version %d, which this version of the program does not read", name, p.Version)
	case p.name() != name, n == 0, len(p.Keys) != n-1, p.Offsets[n-1] != int64(at), p.Offsets[0] != 0,
		!slices.IsSorted(p.Offsets), !slices.IsSortedFunc(p.Keys, bytes.Compare), len(p.Objects)%4 != 0:
		return damaged(int64(at), "the header contradicts the file")
	}
	return p, nil
}

// named adds the file to a damage.
func (l *Log) named(err error, name string) error {
	if d := (*DamageError)(nil); errors.As(err, &d) && d.File == "" {
		d.File = l.path(name)
	}
	return err
}

// blockBuffers are the buffers of a reader. A list of ten thousand objects reads about as many blocks: to allocate and
// clear 30 kB for each took a tenth of its time.
type blockBuffers struct{ compressed, plain []byte }

// read reads compressed bytes with their checksum, which are length bytes together. What it returns is valid until the
// buffers are used again.
func (p *pack) read(ctx context.Context, at, length int64, to *blockBuffers) ([]byte, error) {
	if length < 4 || length > maxBlock {
		return nil, &DamageError{Offset: at, Reason: fmt.Sprintf("a block has %d bytes", length)}
	}
	to.compressed = slices.Grow(to.compressed[:0], int(length))
	b := to.compressed[:length]
	var err error
	execution.Outside(ctx, func() { _, err = p.file.ReadAt(b, at) })
	if err != nil {
		return nil, err
	}
	b, sum := b[:length-4], b[length-4:]
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return nil, &DamageError{Offset: at, Reason: "a checksum is wrong"}
	}
	if n, err := s2.DecodedLen(b); err != nil || n > maxBlock {
		return nil, &DamageError{Offset: at, Reason: "a block is too large"}
	}
	plain, err := s2.Decode(to.plain[:cap(to.plain)], b)
	if err != nil {
		return nil, &DamageError{Offset: at, Reason: err.Error()}
	}
	to.plain = plain
	return plain, nil
}

// mayHave says whether the pack may have changes of an object.
func (p *pack) mayHave(object []byte) bool {
	h := hashOf(object)
	n := len(p.Objects) / 4
	i := sort.Search(n, func(i int) bool { return binary.LittleEndian.Uint32(p.Objects[4*i:]) >= h })
	return i < n && binary.LittleEndian.Uint32(p.Objects[4*i:]) == h
}

// scan reads the entries of a pack in their order. Its user calls seek, or next.
type scan struct {
	ctx   context.Context // of who reads
	p     *pack
	block int
	held  []byte // the block, in blocks; nil: none was read
	rest  []byte // of the block, behind the entry
	key   []byte // of the entry
	// The value of the entry is chain[0], changed by the deltas behind it. decoded is what the first steps of them, and
	// chain[0], make: those of a value that was asked for. It is chain[0], or in one of two buffers, by turns.
	chain   [][]byte
	steps   int
	decoded []byte
	buffers [2][]byte
	blocks  *blockBuffers // nil until a block is read
}

// seek goes to the first entry that is not below a key; false: there is none. Seeking in the block that was read last
// does not read it again.
func (c *scan) seek(key []byte) (ok bool, err error) {
	n := len(c.p.Keys)
	// The last block that begins at the key or below it; the first one, if there is none.
	block := max(0, sort.Search(n, func(i int) bool { return bytes.Compare(c.p.Keys[i], key) > 0 })-1)
	if c.held != nil && block == c.block {
		if bytes.Compare(c.key, key) >= 0 {
			c.rest = c.held
		}
	} else if err := c.load(block); err != nil {
		return false, err
	}
	for {
		if ok, err := c.next(); err != nil || !ok || bytes.Compare(c.key, key) >= 0 {
			return ok, err
		}
	}
}

func (c *scan) load(block int) error {
	if c.blocks == nil {
		c.blocks = &blockBuffers{}
	}
	*c = scan{ctx: c.ctx, p: c.p, block: block, chain: c.chain[:0], buffers: c.buffers, blocks: c.blocks}
	if block >= len(c.p.Keys) {
		return nil
	}
	at := c.p.Offsets[block]
	b, err := c.p.read(c.ctx, at, c.p.Offsets[block+1]-at, c.blocks)
	c.rest, c.held = b, b
	return err
}

// next goes to the next entry; false: there is none.
func (c *scan) next() (ok bool, err error) {
	for len(c.rest) == 0 {
		if c.block >= len(c.p.Keys) {
			return false, nil
		}
		next := c.block + 1
		if c.held == nil {
			next = c.block
		}
		if err := c.load(next); err != nil {
			return false, err
		}
	}
	key, n := binary.Uvarint(c.rest)
	value, m := binary.Uvarint(c.rest[max(n, 0):])
	b := c.rest[max(n, 0)+max(m, 0):]
	if n <= 0 || m <= 0 || key <= 8 || key >= uint64(len(b)) || value >= uint64(len(b))-key {
		return false, c.damage("a block has half an entry")
	}
	isDelta := b[0]
	b = b[1:]
	c.key, c.rest = b[:key:key], b[key+value:]
	value0 := b[key : key+value : key+value]
	switch {
	case isDelta == 0:
		c.chain, c.steps, c.decoded = append(c.chain[:0], value0), 0, nil
	case isDelta == 1 && len(c.chain) > 0 && len(c.chain) <= deltasInRow:
		c.chain = append(c.chain, value0)
	default:
		return false, c.damage("a value is of no kind")
	}
	return true, nil
}

func (c *scan) damage(reason string) error {
	return &DamageError{Offset: c.p.Offsets[c.block], Reason: reason}
}

// value is that of the entry, until the next call.
func (c *scan) value() []byte {
	if c.decoded == nil {
		c.decoded = c.chain[0]
	}
	for ; c.steps < len(c.chain)-1; c.steps++ {
		d := c.chain[c.steps+1]
		to := &c.buffers[c.steps%2]
		*to = delta.AppendRange((*to)[:0], c.decoded, d, 0, delta.Len(d))
		c.decoded = *to
	}
	return c.decoded
}

// entry is the entry, with its key, until the next call.
func (c *scan) entry() entry { return entry{key: c.key, value: c.value()} }

// open finds the packs of the directory. Those that a larger one replaces, and unfinished files, are what a crash has
// left, and are removed; so are those before a gap.
func (l *Log) open() error {
	if err := durable.MkdirAll(l.o.FS, l.dir); err != nil {
		return err
	}
	names, err := l.o.FS.List(l.dir)
	if err != nil {
		return err
	}
	// By their beginnings, and the one that reaches furthest first: it has what the others have.
	var spans []header
	for _, name := range names {
		if h, ok := spanOf(name); ok {
			spans = append(spans, h)
		} else if strings.HasSuffix(name, unfinished) {
			if err := l.o.FS.Remove(l.path(name)); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(spans, func(x, y header) int {
		return int(max(-1, min(1, x.Since-y.Since))*2 - max(-1, min(1, x.Until-y.Until)))
	})
	var packs []header
	for _, h := range spans {
		n := len(packs)
		if n > 0 && packs[n-1].Until != h.Since {
			if h.Until <= packs[n-1].Until { // it is in the one before
				if err := l.remove(h); err != nil {
					return err
				}
				continue
			}
			if err := l.remove(packs...); err != nil {
				return err
			}
			l.o.Logger.Warn(gap, "revision", h.Since)
			packs = nil
		}
		packs = append(packs, h)
	}
	if _, newest := l.Bounds(); len(packs) > 0 && packs[len(packs)-1].Until > newest {
		// The log was restored, or has lost what was not synced: other changes will have these revisions.
		l.o.Logger.Warn(gap, "revision", newest)
		if err := l.remove(packs...); err != nil {
			return err
		}
		packs = nil
	}
	for _, h := range packs {
		p, err := l.openPack(h.name())
		if err != nil {
			for _, p := range l.packs {
				p.release() //nolint:errcheck // it was only read
			}
			return err
		}
		l.packs = append(l.packs, p)
	}
	return nil
}

func (l *Log) remove(packs ...header) (err error) {
	for _, h := range packs {
		err = errors.Join(err, l.o.FS.Remove(l.path(h.name())))
	}
	return err
}
