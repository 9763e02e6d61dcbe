package filelog

import (
	"encoding/binary"
	"io"
)

// scanner reads the frames of a file, as reader does, and goes on after those that do not read back.
//
// The problem: where a chunk is broken, its length may be wrong, so nothing says where the next one begins. Trying
// every position for a chunk with a correct checksum would find chunks that a client has put into an object: everybody
// can compute a checksum. So the length is believed first: most damage is in the bytes of a chunk, not in its header.
// Only if no chunk begins where it says, every position is tried, from there on or from the next byte.
//
// It reads the blocks of the record format itself, because record.Reader gives up a whole block after a broken chunk,
// and with it intact commits.
type scanner struct {
	file  io.ReaderAt
	size  int64
	at    int64 // the next piece begins here
	start int64 // of the block
	block []byte
	sums  sums // of the block
	// strays are offsets from which the chunks of a broken frame lead to no other frame. Each is found once: whoever
	// comes to one of them again would go the rest of the way again.
	strays map[int64]bool
	// searching says that something in the block did not read back, so that lengths there are not to be believed.
	searching bool
	steps     int64 // chunks and positions that were looked at, for the test that this is linear
}

func newScanner(file io.ReaderAt, size int64) *scanner {
	return &scanner{file: file, size: size, start: -1, strays: map[int64]bool{}}
}

// piece is what a file has at an offset: a frame, or bytes that do not read back as one.
type piece struct {
	frame
	end    int64  // where it ends
	broken bool   // it does not read back
	blank  bool   // a broken one, up to the end of the file, that is all zeros
	raw    []byte // what the chunks of a broken frame hold, unchecked: it may be anything
}

// maxRaw bounds what is kept of a frame that does not read back.
const maxRaw = 1 << 20

// chunk reads the chunk at an offset. body and end are set as the header says, if the block has as many bytes; sound
// says that the checksum is right.
func (s *scanner) chunk(at int64) (kind byte, body []byte, end int64, sound bool, err error) {
	b, err := s.load(at)
	if err != nil || len(b) < chunkHeader {
		return 0, nil, at, false, err
	}
	kind = b[6]
	length := chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if kind < chunkFull || kind > chunkLast || length > len(b) {
		return kind, nil, at, false, nil
	}
	s.steps++
	body = b[chunkHeader:length]
	i := int(at - s.start)
	return kind, body, at + int64(length), binary.LittleEndian.Uint32(b) == s.sum(i, i+length), nil
}

// sum is the checksum of the chunk that is block[i:j]. In a block that reads back, each chunk is summed by itself,
// which is faster than to prepare the sums of all parts.
func (s *scanner) sum(i, j int) uint32 {
	if s.searching {
		return s.sums.masked(i+6, j)
	}
	s.steps += int64(j - i)
	return checksum(s.block[i+6 : j])
}

// load returns the bytes from an offset to the end of its block.
func (s *scanner) load(at int64) ([]byte, error) {
	if at >= s.size {
		return nil, nil
	}
	start := at &^ (blockSize - 1)
	if s.start != start {
		if s.block == nil {
			s.block = make([]byte, blockSize)
		}
		s.block = s.block[:blockSize]
		n, err := s.file.ReadAt(s.block[:min(blockSize, s.size-start)], start)
		if err != nil && err != io.EOF {
			return nil, err
		}
		s.block, s.start = s.block[:n], start
		s.sums.of(s.block)
		s.searching = false
	}
	return s.block[min(int(at-start), len(s.block)):], nil
}

// chunkAfter is where a chunk can begin at or after an offset: not in the last bytes of a block, where a header has no
// room.
func chunkAfter(at int64) int64 {
	if left := blockSize - at%blockSize; left < chunkHeader {
		return at + left
	}
	return at
}

// next returns the next piece, io.EOF after the last one, or an error of the disk.
func (s *scanner) next() (piece, error) {
	s.at = chunkAfter(s.at)
	if s.at >= s.size {
		return piece{frame: frame{offset: s.at}}, io.EOF
	}
	p := piece{frame: frame{offset: s.at}}
	var record []byte
	at := s.at
	for first := true; ; first = false {
		kind, body, end, sound, err := s.chunk(at)
		if err != nil {
			return p, err
		}
		fits := first && (kind == chunkFull || kind == chunkFirst) || !first && (kind == chunkMiddle || kind == chunkLast)
		if !sound || !fits {
			return s.skip(p, record, at, fits)
		}
		record = append(record, body...)
		at = chunkAfter(end)
		if kind == chunkFull || kind == chunkLast {
			p.end, s.at = end, end
			break
		}
	}
	if !p.parse(record) {
		p.broken, p.raw = true, record
	}
	return p, nil
}

// skip finds where a frame ends that is broken by the chunk at an offset; believe says that the header of this chunk
// has the type of one that belongs there.
func (s *scanner) skip(p piece, record []byte, at int64, believe bool) (piece, error) {
	p.broken, p.raw, s.searching = true, record, true
	_, body, end, sound, err := s.chunk(at)
	if err != nil {
		return p, err
	}
	if believe && end > at {
		if !sound && len(p.raw)+len(body) <= maxRaw {
			p.raw = append(p.raw, body...)
		}
		found, err := s.resume(&p, chunkAfter(end))
		if found || err != nil {
			return p, err
		}
	}
	for from := at; from < s.size; from++ {
		s.searching = true
		if from > p.offset {
			if begins, err := s.begins(from); begins || err != nil {
				p.end, s.at = from, from
				return p, err
			}
		}
	}
	p.end, s.at = s.size, s.size
	zero, err := allZero(io.NewSectionReader(s.file, p.offset, s.size-p.offset))
	p.blank = zero
	return p, err
}

// resume goes on at an offset at which a chunk should begin, and says whether one does, or the file ends: the chunks of
// the broken frame are passed over.
func (s *scanner) resume(p *piece, at int64) (found bool, err error) {
	var passed []int64
	defer func() {
		for _, at := range passed {
			if !found {
				s.strays[at] = true
			}
		}
	}()
	for at < s.size {
		if s.strays[at] {
			return false, nil
		}
		passed = append(passed, at)
		if begins, err := s.begins(at); begins || err != nil {
			p.end, s.at = at, at
			return begins, err
		}
		kind, body, end, sound, err := s.chunk(at)
		if err != nil {
			return false, err
		}
		if !sound || kind != chunkMiddle && kind != chunkLast {
			// The zeros after the last frame.
			b, err := s.load(at)
			if err != nil || len(b) < chunkHeader || !zero(b[:chunkHeader]) {
				return false, err
			}
			p.end, s.at = at, at
			return true, nil
		}
		if len(p.raw)+len(body) <= maxRaw {
			p.raw = append(p.raw, body...)
		}
		at = chunkAfter(end)
	}
	p.end, s.at = s.size, s.size
	return true, nil
}

// begins says whether a frame begins at an offset, with a sound chunk. The checksum comes last: the other conditions
// rule out most positions.
func (s *scanner) begins(at int64) (bool, error) {
	s.steps++
	b, err := s.load(at)
	if err != nil || len(b) < chunkHeader+frameHeader || b[6] != chunkFull && b[6] != chunkFirst ||
		b[chunkHeader] < frameSegment || b[chunkHeader] > frameEnd ||
		binary.LittleEndian.Uint16(b[4:]) < frameHeader {
		return false, err
	}
	_, _, _, sound, err := s.chunk(at)
	return sound, err
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
