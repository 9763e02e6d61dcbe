package proto

import (
	"encoding/binary"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/internal/invariants"
	"plinth/schema"
)

// plan is a struct type as the transcoder needs it: its fields by JSON name, and their order in the message. It is
// immutable once it has been returned.
//
// Invariants (broken): names strictly ascend (as the members of stored objects do); order strictly ascends by number at
// each level, as in the generated code; and each field that protobuf carries is in order exactly once.
type plan struct {
	goName string
	names  []string  // of fields
	fields []planned // by the same index
	order  []step
	zero   []byte // the message of a struct with no field set: the absent bytes of all fields, in order
}

// broken is the invariant that does not hold; "" if all do.
func (p *plan) broken() string {
	for i := range p.names {
		if i > 0 && p.names[i-1] >= p.names[i] {
			return "names out of order"
		}
	}
	seen := make([]int, len(p.fields))
	if !countSteps(p.order, seen) {
		return "field numbers out of order"
	}
	for i, f := range p.fields {
		if f.none != (seen[i] == 0) || seen[i] > 1 {
			return "a field that is missing, or there twice: " + p.names[i]
		}
	}
	return ""
}

// countSteps counts how often each field is among steps, whose numbers must ascend.
func countSteps(steps []step, seen []int) bool {
	for i, s := range steps {
		if i > 0 && steps[i-1].number >= s.number {
			return false
		}
		if s.field >= 0 {
			seen[s.field]++
		} else if !countSteps(s.embedded, seen) {
			return false
		}
	}
	return true
}

// planned is a field.
type planned struct {
	tag []byte // number and wire type
	// none marks fields that protobuf does not carry: the apiVersion and kind of an object are in its envelope.
	none   bool
	absent []byte // written if the object does not have the field
	null   []byte // written if the field is null
	shape  shape
	of     element // or of the items, or of the values
}

// shape says how many values a field has.
type shape uint8

const (
	single shape = iota
	repeated
	entries
)

// element is the type of one value after a tag.
type element struct {
	t    *schema.Type
	plan *plan  // Struct
	item *items // List: it is wrapped, and these are its items
	zero []byte // any but Struct: the zero value, without its tag
}

// appendZero appends the zero value.
func (e *element) appendZero(dst []byte) []byte {
	if e.t.Kind == schema.Struct { // the plan may be complete only after the element
		return append(binary.AppendUvarint(dst, uint64(len(e.plan.zero))), e.plan.zero...)
	}
	return append(dst, e.zero...)
}

// items are the items of a wrapped list.
type items struct {
	tag []byte
	of  element
}

// step is one field of a message in order: a field of the struct, or an embedded struct, which has its own field
// numbers.
type step struct {
	number   int
	field    int // index into plan.fields; -1: embedded
	tag      []byte
	embedded []step
}

// planCache keeps plans.
type planCache struct {
	ready sync.Map // *schema.Type → *plan
	mu    sync.Mutex
	known map[*schema.Type]*plan // complete whenever mu is free
}

var plans = &planCache{known: map[*schema.Type]*plan{}}

// planOf is the plan of a struct type.
func planOf(t *schema.Type) *plan {
	if known, ok := plans.ready.Load(t); ok {
		return known.(*plan)
	}
	plans.mu.Lock()
	defer plans.mu.Unlock()
	p := makePlan(t)
	plans.ready.Store(t, p)
	return p
}

// makePlan makes the plan of a type and of everything below it. Recursive types refer to themselves through lists, maps
// and pointers only, whose zero values are not written. So no plan contains the zero value of one that is not complete
// yet.
func makePlan(t *schema.Type) *plan {
	if p := plans.known[t]; p != nil {
		return p
	}
	p := &plan{goName: t.GoName}
	plans.known[t] = p
	for i := range t.Fields {
		f := &t.Fields[i]
		p.names = append(p.names, f.Name)
		if f.Number == 0 || slices.Contains(f.Within, 0) {
			p.fields = append(p.fields, planned{none: true})
			continue
		}
		field := planField(f)
		p.fields = append(p.fields, field)
		at := &p.order
		for _, number := range f.Within {
			at = &embeddedAt(at, number).embedded
		}
		*at = append(*at, step{number: f.Number, field: i})
	}
	sortSteps(p.order)
	p.zero = p.appendZero(nil, p.order)
	if invariants.Enabled {
		if broken := p.broken(); broken != "" {
			invariants.Fail("proto: %s of %s", broken, p.goName)
		}
	}
	return p
}

// embeddedAt is the step of the embedded struct with this number; it is added if it does not exist.
func embeddedAt(steps *[]step, number int) *step {
	at := slices.IndexFunc(*steps, func(s step) bool { return s.number == number })
	if at < 0 {
		at = len(*steps)
		*steps = append(*steps, step{number: number, field: -1, tag: tagOf(number, protowire.BytesType)})
	}
	return &(*steps)[at]
}

func sortSteps(steps []step) {
	slices.SortFunc(steps, func(a, b step) int { return a.number - b.number })
	for i := range steps {
		sortSteps(steps[i].embedded)
	}
}

// appendZero appends the message of a struct with no field set.
func (p *plan) appendZero(dst []byte, order []step) []byte {
	for i := range order {
		s := &order[i]
		if s.field >= 0 {
			dst = append(dst, p.fields[s.field].absent...)
			continue
		}
		dst = append(dst, s.tag...)
		start := len(dst)
		dst = insertLength(p.appendZero(dst, s.embedded), start)
	}
	return dst
}

func planField(f *schema.Field) planned {
	t := f.Type
	if t.Kind == schema.Map {
		return planned{tag: tagOf(f.Number, protowire.BytesType), shape: entries, of: planElement(t.Elem)}
	}
	if t.Kind == schema.List { // wrapped lists occur only as values of maps
		return planned{tag: tagOf(f.Number, wireType(t.Elem)), shape: repeated, of: planElement(t.Elem)}
	}
	out := planned{tag: tagOf(f.Number, wireType(t)), of: planElement(t)}
	zero := out.of.appendZero(slices.Clone(out.tag))
	if !f.Pointer && t.Kind != schema.Bytes {
		out.absent = zero
	}
	out.null = out.absent
	if f.OmitEmpty && (t.Kind == schema.Time || t.Kind == schema.MicroTime) {
		// A nil pointer would have been left out of the JSON: null is a pointer to the zero time here.
		out.null = zero
	}
	return out
}

func planElement(t *schema.Type) element {
	e := element{t: t}
	switch t.Kind {
	case schema.Any:
		if either := t.Either; either != nil {
			e.plan = makePlan(either.Object)
			other := either.Other
			if other.Kind == schema.List {
				other = other.Elem
			}
			e.item = &items{tag: tagOf(either.OtherNumber, wireType(other)), of: planElement(other)}
		}
		e.zero = []byte{0}
	case schema.Struct:
		e.plan = makePlan(t)
	case schema.List:
		e.item = &items{tag: tagOf(1, wireType(t.Elem)), of: planElement(t.Elem)}
		e.zero = []byte{0}
	case schema.Float:
		e.zero = make([]byte, 8)
	case schema.Quantity:
		e.zero = []byte{3, firstTag, 1, '0'}
	case schema.IntOrString:
		e.zero = []byte{6, 1<<3 | byte(protowire.VarintType), 0, 2<<3 | byte(protowire.VarintType), 0,
			3<<3 | byte(protowire.BytesType), 0}
	default: // the number 0, false, the empty text, no time
		e.zero = []byte{0}
	}
	return e
}

// wireType is the wire type of a value.
func wireType(t *schema.Type) protowire.Type {
	switch {
	case t.Kind == schema.Int, t.Kind == schema.Bool:
		return protowire.VarintType
	case t.Kind == schema.Float:
		return protowire.Fixed64Type
	}
	return protowire.BytesType
}

func tagOf(number int, typ protowire.Type) []byte {
	return protowire.AppendTag(nil, protowire.Number(number), typ)
}

// find is the index of a field. from is the index behind the field that was found last: the members of stored objects
// ascend, so nearly always the field is among the few from there on. Names are compared for equality, which nearly
// always their lengths decide.
func (p *plan) find(from int, name []byte) (int, bool) {
	for i, candidate := range p.names[from:] {
		if candidate == string(name) {
			return from + i, true
		}
	}
	for i, candidate := range p.names[:from] {
		if candidate == string(name) {
			return i, true
		}
	}
	return from, false
}
