package filelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"

	"plinth/internal/store"
)

// someFrames are the bytes of a file with frames of several sizes: in one chunk, in several, and across blocks.
func someFrames(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for i, size := range []int{0, 20, 500, blockSize - 40, 3 * blockSize, 1, 7, 10_000} {
		r, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		var header [frameHeader]byte
		putHeader(header[:], frameCommit, 0, int64(i))
		payload := append(header[:], bytes.Repeat([]byte{byte(i + 1)}, size)...)
		if _, err := r.Write(payload); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// scripted is a file of frames, as a script says: two bytes a frame, for its size and its bytes. A size in the second
// half of the range is that of a frame whose bytes hold a sound chunk, as a client can put one into an object.
func scripted(t testing.TB, script []byte) []byte {
	t.Helper()
	sizes := [...]int{0, 1, 7, 20, 500, 10_000, blockSize - 40, 2 * blockSize}
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for i := 0; i+1 < len(script) && i < 2*len(sizes); i += 2 {
		r, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat(script[i+1:i+2], sizes[int(script[i])%len(sizes)])
		if script[i] >= 0x80 {
			payload = append(payload, forged(frameHeader, int64(i))...)
		}
		var header [frameHeader]byte
		putHeader(header[:], frameCommit, 0, int64(i))
		if _, err := r.Write(append(header[:], payload...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// forged is a sound chunk with the beginning of a commit, of so many bytes, zeros but for the header.
func forged(size int, revision int64) []byte {
	chunk := make([]byte, chunkHeader+size)
	binary.LittleEndian.PutUint16(chunk[4:], uint16(size))
	chunk[6] = chunkFirst
	putHeader(chunk[chunkHeader:], frameCommit, 0, revision)
	binary.LittleEndian.PutUint32(chunk, checksum(chunk[6:]))
	return chunk
}

// FuzzScanner reads a file of some frames, in which bytes are changed: four bytes of damage are an offset and what is
// added there without a carry; rest follows the frames. So short inputs make files of several blocks. Up to the first
// frame that does not read back, the scanner finds the frames that the reader does; after it, it comes to the end, and
// no piece begins before the end of the one before it.
//
// SPEC: RUN-11
func FuzzScanner(f *testing.F) {
	f.Add([]byte("\x01a\x06b\x07c\x03d"), []byte{0, 0, 0, 0}, []byte{})
	f.Add([]byte("\x05a\x05b"), []byte{0, 0, 100, 1}, []byte{})
	f.Add([]byte("\x07a\x06b"), []byte{0, 0x80, 4, 0xff}, make([]byte, 100))
	f.Add([]byte("\x87a\x86b\x81c"), []byte{0, 0, 5, 0x40, 1, 0, 4, 0x20}, forged(600, 9))
	f.Add([]byte{}, []byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, script, damage, rest []byte) {
		b := append(scripted(t, script), rest...)
		for ; len(damage) >= 4 && len(b) > 0; damage = damage[4:] {
			b[(int(damage[0])<<16|int(damage[1])<<8|int(damage[2]))%len(b)] ^= damage[3]
		}
		checkScanner(t, b)
	})
}

// checkScanner scans a file, and reads it beside up to the first frame that does not read back.
func checkScanner(t *testing.T, b []byte) *scanner {
	t.Helper()
	s := newScanner(bytes.NewReader(b), int64(len(b)))
	r := newReader(bytes.NewReader(b), 0, int64(len(b)))
	sound, end := true, int64(0)
	for {
		p, err := s.next()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.offset < end || p.end <= p.offset || p.end > int64(len(b)) {
			t.Fatalf("a piece from %d to %d follows one that ends at %d, of %d bytes", p.offset, p.end, end, len(b))
		}
		end = p.end
		if p.broken {
			hintsOf(p.raw)
		}
		if !sound {
			continue
		}
		want, err := r.next()
		if sound = err == nil && !p.broken; !sound {
			if err == nil {
				t.Fatalf("the frame at %d reads back, and the scanner finds none", want.offset)
			}
			continue
		}
		if want.kind != p.kind || want.revision != p.revision || !bytes.Equal(want.payload, p.payload) {
			t.Fatalf("the frame at %d differs", p.offset)
		}
	}
}

// A part of a block has the same checksum, however it is computed.
func TestSums(t *testing.T) {
	block := someFrames(t)[:blockSize]
	var s sums
	s.of(block)
	for i := 0; i < len(block); i += 1009 {
		for _, j := range []int{i, i + 1, i + 6, (i + len(block)) / 2, len(block)} {
			if j <= len(block) && s.masked(i, j) != checksum(block[i:j]) {
				t.Fatalf("the checksum from %d to %d is wrong", i, j)
			}
		}
	}
}

// Whatever is broken, the work is proportional to the size: what a client can write into an object is no reason to sum
// a block for each of its bytes, or to follow the chunks of one frame again and again.
//
// SPEC: RUN-11
func TestScannerIsLinear(t *testing.T) {
	const size = 4 << 20
	liar := make([]byte, 24) // looks like the beginning of a frame, at each of its copies
	binary.LittleEndian.PutUint16(liar[4:], 16<<10)
	liar[6], liar[chunkHeader] = chunkFirst, frameCommit
	// Every frame of the first block is followed by a chunk that does not read back, and whose length leads to the same
	// chunks, which lead to none.
	leading := func() (b []byte) {
		for len(b) < blockSize-100 {
			b = append(b, forged(frameHeader, 1)...)
			b = append(b, 0, 0, 0, 0, 0, 0, chunkMiddle)
			binary.LittleEndian.PutUint16(b[len(b)-3:], uint16(blockSize-len(b)))
		}
		b = append(b, make([]byte, blockSize-len(b))...)
		middle := forged(blockSize-chunkHeader, 1)
		middle[6] = chunkMiddle
		binary.LittleEndian.PutUint32(middle, checksum(middle[6:]))
		return append(append(b, bytes.Repeat(middle, size/blockSize)...), bytes.Repeat([]byte{9}, blockSize)...)
	}
	for name, b := range map[string][]byte{
		"headers with lengths":   bytes.Repeat(liar, size/len(liar)),
		"frames that do not end": bytes.Repeat(forged(frameHeader, 1), size/(chunkHeader+frameHeader)),
		"the same byte":          bytes.Repeat([]byte{chunkFirst}, size),
		"chains":                 leading(),
	} {
		s := checkScanner(t, b)
		if work := (s.steps + s.sums.steps) / size; work > 100 {
			t.Errorf("%s: %d steps for each byte", name, work)
		}
	}
}

// After a flipped byte in the content of a chunk, every other frame is found.
//
// SPEC: RUN-11
func TestScannerGoesOn(t *testing.T) {
	whole := someFrames(t)
	for at := 0; at < len(whole); at += 61 {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		s := newScanner(bytes.NewReader(b), int64(len(b)))
		found := 0
		for {
			p, err := s.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !p.broken {
				found++
			}
		}
		if found < 7 {
			t.Errorf("with a flipped bit at %d, %d frames of 8 are found", at, found)
		}
	}
}

// Many frames in a row that do not read back lose the same commits: their keys are named once, and not for each frame.
//
// SPEC: RUN-11
func TestKeysOfLostCommitsAreNamedOnce(t *testing.T) {
	const lost = 3000
	i := &inspector{Log: &Log{}, in: &Inspection{}, previous: map[int64]PlaneKey{}, planes: newPlanesOf()}
	want := map[PlaneKey]bool{}
	for n := range int64(lost) {
		k := PlaneKey{Key: store.Key{Resource: "configmaps", Name: fmt.Sprintf("default/%d", n)}}
		want[k], i.previous[n+1] = true, k
		i.find(Finding{First: 1, Last: lost})
	}
	i.previous[lost+1] = PlaneKey{Key: store.Key{Resource: "configmaps", Name: "default/another"}}
	i.conclude()
	named := 0
	for _, f := range i.in.Findings {
		for _, k := range f.Keys {
			named++
			if !want[k] {
				t.Fatalf("%s is not lost", k)
			}
			delete(want, k)
		}
	}
	if named != lost || len(want) > 0 {
		t.Errorf("%d keys are named, of %d; %d are not", named, lost, len(want))
	}
}
