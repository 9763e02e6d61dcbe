package filelog

import (
	"bytes"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
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

// FuzzScanner reads any bytes as a file. Up to the first frame that does not read back, the scanner finds the frames
// that the reader does; after it, it comes to the end, and no piece begins before the end of the one before it.
//
// SPEC: RUN-11
func FuzzScanner(f *testing.F) {
	whole := someFrames(f)
	f.Add(whole, 0, byte(0))
	f.Add(whole, 100, byte(1))
	f.Add(whole, blockSize+3, byte(0xff))
	f.Add(append(bytes.Clone(whole), make([]byte, 3*blockSize)...), len(whole)-5, byte(0))
	f.Add([]byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		b = bytes.Clone(b)
		if at >= 0 && at < len(b) {
			b[at] ^= flip
		}
		s := newScanner(bytes.NewReader(b), int64(len(b)))
		r := newReader(bytes.NewReader(b), 0, int64(len(b)))
		sound, end := true, int64(0)
		for {
			p, err := s.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.offset < end || p.end <= p.offset || p.end > int64(len(b)) {
				t.Fatalf("a piece from %d to %d follows one that ends at %d, of %d bytes", p.offset, p.end, end, len(b))
			}
			end = p.end
			if p.broken {
				keysOf(p.raw)
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
	})
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
