package filelog

import (
	"hash/crc32"
	"sync"
)

// sums computes the checksums of any parts of one block.
//
// The problem: where a chunk is broken, every position of its block is tried as the beginning of the next one. A
// length in the bytes there may be anything, so each position may cost a checksum of up to a whole block, and a client
// can write an object in which each does: a file of n bytes would cost 32,000 n. A CRC is linear, so that of a part
// follows from those of two prefixes:
//
//	crc(b[i:j]) = crc(b[:j]) ⊕ shift(crc(b[:i]), j-i)
//	shift(c, n) = c · x^(8n) mod P
//
// The prefixes are computed once for a block, when a part of it is first asked for; a part costs 32 steps then.
type sums struct {
	block    []byte
	prefixes []uint32 // prefixes[i] = crc(block[:i]), for a block that was asked about
	known    bool     // prefixes are those of block
	steps    int64    // bytes and bits that were looked at, for the test that this is linear
}

// of begins with another block, which does not change until the next call.
func (s *sums) of(block []byte) { s.block, s.known = block, false }

// masked is the checksum of a chunk whose type and bytes are block[i:j], as checksum computes it.
func (s *sums) masked(i, j int) uint32 {
	if !s.known {
		s.prefixes = append(s.prefixes[:0], 0)
		crc := ^uint32(0)
		for _, b := range s.block {
			crc = castagnoli[byte(crc)^b] ^ crc>>8
			s.prefixes = append(s.prefixes, ^crc)
		}
		s.known = true
		s.steps += int64(len(s.block))
	}
	s.steps += 32
	return masked(s.prefixes[j] ^ product(powers()[j-i], s.prefixes[i]))
}

// powers returns x^(8n) mod P for each n up to the size of a block. The coefficient of x^0 is the highest bit, as in
// the sums themselves.
var powers = sync.OnceValue(func() *[blockSize + 1]uint32 {
	var all [blockSize + 1]uint32
	all[0] = 1 << 31
	for n := range blockSize {
		all[n+1] = castagnoli[byte(all[n])] ^ all[n]>>8
	}
	return &all
})

// product is a · b mod P.
func product(a, b uint32) (p uint32) {
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ crc32.Castagnoli
		} else {
			b >>= 1
		}
	}
	return p
}
