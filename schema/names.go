package schema

import "math/bits"

// names is a hash table from the names of the fields of a struct to their indices, with open addressing. Every walk
// looks up every member, and most of the cost of a write is walks: BenchmarkSettle takes a quarter less time than with
// a binary search, and a fifth less than with a map of Go, or with slots by hash/maphash. The zero value finds
// nothing.
//
// Slots hold numbers and not names, so that a table of 40 fields is 256 bytes, and many definitions together have tens
// of thousands of types. A search compares the name with that of the field in the slot, and continues with the next
// slot if they differ. A struct of the fields host, path and port has 8 slots:
//
//	slot     0    1    2    3    4    5    6    7
//	number   3    -    -    -    -    -    1    2        port hashes to 6 as well, and is in the next empty slot
//
// The author of a schema can choose names that all hash to one slot, as the hash is not secret and leaves out the
// middle of long names. A look-up then compares names one after the other, as it would without an index: at most the
// number of fields, which is bounded by the size of the definition.
//
// Invariants: at least half of the slots are empty, so that each search ends; and no slot is empty between slot(name)
// and the slot that holds its field.
type names struct {
	slots []uint16 // index of a field + 1; 0: empty
	shift uint8    // 64 - log2(len(slots))
}

// namesOf makes the table of these fields, whose names are distinct. Their number must be less than math.MaxUint16.
func namesOf(fields []Field) names {
	if len(fields) == 0 {
		return names{}
	}
	size := bits.Len(uint(2*len(fields) - 1))
	n := names{slots: make([]uint16, 1<<size), shift: uint8(64 - size)}
	for i := range fields {
		at := n.slot(fields[i].Name)
		for n.slots[at] != 0 {
			at = n.after(at)
		}
		n.slots[at] = uint16(i + 1)
	}
	return n
}

// find is the index of the field of this name; ok is false if there is none.
func (n *names) find(fields []Field, name string) (int, bool) {
	if len(n.slots) == 0 {
		return 0, false
	}
	for at := n.slot(name); n.slots[at] != 0; at = n.after(at) {
		if i := int(n.slots[at]) - 1; fields[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// slot is the first slot in which a name may be, by a hash of its length and its first and last bytes: names of one
// struct differ in these, and a hash of all bytes would take longer than comparing the few names that collide.
func (n *names) slot(name string) int {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing
	h := uint64(len(name))
	switch {
	case len(name) >= 8:
		h += word(name)*odd ^ word(name[len(name)-8:])
	case len(name) >= 4:
		h += half(name) | half(name[len(name)-4:])<<32
	case len(name) > 0:
		h += uint64(name[0])<<8 | uint64(name[len(name)/2])<<16 | uint64(name[len(name)-1])<<24
	}
	return int(h * odd >> n.shift)
}

// after is the next slot; the first one follows the last.
func (n *names) after(at int) int { return (at + 1) & (len(n.slots) - 1) }

// word and half are the first eight and four bytes of a text.
func word(t string) uint64 {
	return uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 | uint64(t[4])<<32 | uint64(
		t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
}

func half(t string) uint64 {
	return uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24
}
