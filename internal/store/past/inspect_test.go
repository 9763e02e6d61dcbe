package past

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/s2"
)

// An inspection finds each byte that is another one, and each that is missing, says in which file, and changes nothing;
// what a start notices it notices, too.
//
// SPEC: BEY-4, RUN-11
func TestInspect(t *testing.T) {
	rng, mem := rand.New(rand.NewPCG(12, 9)), vfs.NewMem()
	if in, err := Inspect(t.Context(), "data/past", mem); err != nil || in.Packs != 0 || in.Damaged() {
		t.Errorf("without a directory: %+v, %v", in, err)
	}
	k := newKept(t, mem, unlimited())
	began := time.Now().Add(-time.Minute)
	k.write(rng, 150)
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.Close()
	in, err := Inspect(t.Context(), "data/past", mem)
	if err != nil || len(in.Findings) != 0 || in.Packs != len(k.log.packs) && in.Packs == 0 || in.Changes < 120 ||
		in.Since > 1 || in.Until != 151 && in.Until != 150 || in.From.Before(began) || in.Bytes == 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	names, err := mem.List("data/past")
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	slices.Sort(names)
	for _, name := range names {
		path := "data/past/" + name
		whole := read(t, mem, path)
		for range 200 {
			b, what := slices.Clone(whole), "another byte"
			if at := rng.IntN(len(b)); rng.IntN(4) > 0 {
				b[at] ^= 1 << rng.IntN(8)
			} else {
				b, what = b[:at], "the end missing"
			}
			write(t, mem, path, b)
			in, err := Inspect(t.Context(), "data/past", mem)
			if err != nil || !in.Damaged() || len(in.Findings) != 1 || in.Findings[0].File != path ||
				in.Findings[0].Offset < 0 || in.Findings[0].Offset > int64(len(b)) {
				t.Fatalf("%s with %s: %+v, %v", name, what, in, err)
			}
			if have := read(t, mem, path); !slices.Equal(have, b) {
				t.Fatalf("%s is changed", name)
			}
		}
		write(t, mem, path, whole)
	}
	// What a crash leaves is noted, and no damage; so is a gap.
	whole := read(t, mem, "data/past/"+names[1])
	write(t, mem, "data/past/00000000000000000003-00000000000000000009.pack", whole)
	write(t, mem, "data/past/00000000000000000900-00000000000000000999.pack.tmp", whole)
	if err := mem.Remove("data/past/" + names[len(names)-2]); err != nil {
		t.Fatal(err)
	}
	in, err = Inspect(t.Context(), "data/past", mem)
	if err != nil || in.Damaged() || len(in.Findings) != 3 || in.Since < 50 {
		t.Errorf("%+v, %v", in, err)
	}
	// A pack of a later version is no damage: it cannot be checked.
	write(t, mem, "data/past/"+names[0], withVersion(t, read(t, mem, "data/past/"+names[0]), purgedVersion+1))
	if in, err := Inspect(t.Context(), "data/past", mem); err == nil || !strings.Contains(err.Error(), "version 3") ||
		!strings.Contains(err.Error(), names[0]) {
		t.Errorf("a later version: %+v, %v", in, err)
	}
}

// withVersion is a pack whose header has another version.
func withVersion(t *testing.T, b []byte, version int) []byte {
	t.Helper()
	trailer := b[len(b)-trailerBytes:]
	at := binary.LittleEndian.Uint64(trailer)
	text, err := s2.Decode(nil, b[at:len(b)-trailerBytes-4])
	if err != nil {
		t.Fatal(err)
	}
	var h header
	if err := cbor.Unmarshal(text, &h); err != nil {
		t.Fatal(err)
	}
	h.Version = version
	if text, err = cbor.Marshal(h); err != nil {
		t.Fatal(err)
	}
	head := s2.Encode(nil, text)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	b = append(slices.Clone(b[:at]), head...)
	b = binary.LittleEndian.AppendUint64(b, at)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	return append(b, magic...)
}
