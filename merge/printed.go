package merge

import (
	"hash/maphash"
	"math/bits"
	syncatomic "sync/atomic" // atomic is a shape of values here

	"plinth/internal/invariants"
	"plinth/object"
)

// Printed keeps sets that were printed lately, with what FieldsV1 returned for them. It may be used concurrently; the
// zero value is empty, and a nil *Printed keeps nothing.
//
// Objects of one template have managers with equal sets: 5,000 Pods of a Deployment have two different ones, of some
// fifty paths. To print such a set makes some fifty members and their keys, which is a quarter of the memory that a
// create allocates; to find out that it is equal to another one allocates nothing.
//
// A set has one slot, by its hash, so that a look-up is one load, and the memory is bounded. A set takes the slot when
// its hash comes for the second time in a row: sets that never come again, of objects that were written by hand,
// are not kept, and are not copied.
//
//	slot = p   ⇒   p.value = p.set.FieldsV1()  ∧  p.set has its own memory
//
// Elements that are equal can have different texts: the numbers 1 and 1.0. So no set with a number other than an
// integer is kept or looked up.
type Printed struct {
	slots [printedSlots]struct {
		hash syncatomic.Uint64 // of the set that was printed last
		kept syncatomic.Pointer[printedSet]
	}
}

const (
	printedSlots = 64
	// maxPrinted is the greatest number of nodes of a set that is kept: each takes about a hundred bytes.
	maxPrinted = 500
)

type printedSet struct {
	hash  uint64
	set   Set
	value object.Value
}

var seed = maphash.MakeSeed()

// fieldsV1 is s.FieldsV1().
func (p *Printed) fieldsV1(s Set) object.Value {
	if p == nil {
		return s.FieldsV1()
	}
	h := setHash{sum: 1}
	if h.add(s); h.nodes > maxPrinted || h.ambiguous {
		return s.FieldsV1()
	}
	slot := &p.slots[h.sum%printedSlots]
	if known := slot.kept.Load(); known != nil && known.hash == h.sum && known.set.Equal(s) {
		if invariants.Enabled && !object.Equal(known.value, s.FieldsV1()) {
			invariants.Fail("merge: a set is printed as %s", object.AppendJSON(nil, known.value))
		}
		return known.value
	}
	value := s.FieldsV1()
	if slot.hash.Swap(h.sum) == h.sum {
		// The elements of s may point into the body of a request; those that are parsed point into value.
		if own, err := ParseFieldsV1(value); err == nil {
			slot.kept.Store(&printedSet{h.sum, own, value})
		}
	}
	return value
}

// setHash computes a hash of a set: equal sets have equal hashes.
type setHash struct {
	sum       uint64
	nodes     int
	ambiguous bool // the set has an element whose text does not follow from its value
}

// add adds the nodes of a set to the hash, and behind each the number of nodes on the level below it. It ends at a set
// that is too large.
func (h *setHash) add(s Set) {
	if h.nodes += len(s.nodes); h.nodes > maxPrinted {
		return
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		h.mix(uint64(n.element.step)<<8 | uint64(n.marks))
		h.value(n.element.v)
		if len(n.below.nodes) > 0 {
			h.add(n.below)
		}
		h.mix(uint64(len(n.below.nodes)))
	}
}

func (h *setHash) value(v object.Value) {
	switch v.Kind() {
	case object.String:
		h.mix(maphash.String(seed, v.Str()))
	case object.Int:
		h.mix(uint64(v.Int()))
	case object.Map:
		for _, m := range v.Members() {
			h.mix(maphash.String(seed, m.Key))
			h.value(m.Value)
		}
	default:
		h.ambiguous = true
	}
}

// mix adds a number. The multiplication spreads its bits upwards, and the rotation brings them back to the lower ones,
// which choose the slot.
func (h *setHash) mix(x uint64) { h.sum = bits.RotateLeft64((h.sum^x)*0x9e3779b97f4a7c15, 29) }
