package proto

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// transcoder converts the canonical JSON of an object to the message of its type, in one pass over the bytes.
//
// Members are read in the order of names, and have to be written in the order of field numbers. The fields of a struct
// are therefore appended to buf as they are read, with their positions in cuts, and when the struct ends they are
// copied to tmp in order, and back:
//
//	buf[start:] = the fields found so far of the innermost open struct, in the order of its members
//	cuts[base+i] = the part of buf with field i of that struct
//
// Each byte is copied a few times per message around it, so the work grows with the size of the object times its depth
// at most. Searching the JSON for each field in turn would read the members of a struct once per field of its type, of
// which a PodSpec has forty and most are absent. Lengths have the same problem, as they precede what they measure: see
// insertLength.
//
// The bytes were checked before they were stored. If they do not fit the type nevertheless (they were stored by a
// version of the server with another type), the pass ends with an error.
type transcoder struct {
	in   []byte
	pos  int
	buf  []byte // complete messages, and the fields of open ones
	tmp  []byte // scratch buffer: for the order of fields, and to unescape text
	cuts []cut  // a run for each open message, by the index of the field
	err  error
	// escape is the first backslash behind the beginning of an earlier text; len(in) if there is none. So
	// texts without escapes, which nearly all are, are not searched for them one by one.
	escape int

	splice   int // offset at which resourceVersion is inserted; -1: it is not inserted
	revision int64
	// fieldsV1 appends a set of managedFields, given as canonical JSON, to the message; nil: it is appended as it is.
	fieldsV1 func(dst, text []byte) []byte
}

// cut is a part of the buffer; 0, 0 is the absent part.
type cut struct{ start, end int }

var transcoders = sync.Pool{New: func() any { return new(transcoder) }}

// maxScratch limits the size of the buffers that a transcoder keeps for the next object.
const maxScratch = 256 << 10

// AppendMessage appends the message of an object, given as canonical JSON. With a revision above 0 its resourceVersion
// is inserted at the offset splice.
func AppendMessage(dst []byte, t *schema.Type, data []byte, splice int, revision int64) ([]byte, error) {
	e, err := transcode(t, data, splice, revision)
	if err == nil {
		dst = append(dst, e.buf...)
	}
	e.release()
	return dst, err
}

// Size is the size of an object in its envelope, as [AppendObject] appends it. It makes the message in a pooled
// buffer, so it takes as long, but allocates only apiVersion and kind.
func Size(t *schema.Type, data []byte) (int, error) {
	e, err := transcode(t, data, 0, 0)
	message := len(e.buf)
	e.release()
	if err != nil {
		return 0, err
	}
	return EnvelopeOf(data).Size(message), nil
}

// transcode makes a message; it is in buf until the transcoder is released.
func transcode(t *schema.Type, data []byte, splice int, revision int64) (*transcoder, error) {
	e := newTranscoder(data)
	if revision != 0 {
		e.splice, e.revision = splice, revision
	}
	e.message(planOf(t))
	return e, e.err
}

// newTranscoder returns a transcoder from the pool.
func newTranscoder(data []byte) *transcoder {
	e := transcoders.Get().(*transcoder)
	e.in, e.pos, e.escape, e.err = data, 0, 0, nil
	e.splice, e.revision = -1, 0
	return e
}

// release returns the buffers to the pool, unless they have grown very large.
func (e *transcoder) release() {
	e.in, e.buf, e.cuts, e.fieldsV1 = nil, e.buf[:0], e.cuts[:0], nil
	if cap(e.buf)+cap(e.tmp) <= maxScratch {
		transcoders.Put(e)
	}
}

// fail records the first error, and ends the pass.
func (e *transcoder) fail(t *schema.Type, what string) {
	if e.err == nil {
		e.err = fmt.Errorf("protobuf: offset %d: %s %s", e.pos, t.Kind, what)
	}
	e.pos = len(e.in)
}

// peek is the byte at pos, or 0 at the end.
func (e *transcoder) peek() byte {
	if e.pos < len(e.in) {
		return e.in[e.pos]
	}
	return 0
}

// message appends the message of the JSON object at pos.
func (e *transcoder) message(p *plan) {
	if start := len(e.buf); e.fields(p) {
		e.buf = append(e.buf[:start], e.tmp...)
	}
}

// sized appends the message of the JSON object at pos, and its length before it.
func (e *transcoder) sized(p *plan) {
	if start := len(e.buf); e.fields(p) {
		e.buf = append(binary.AppendUvarint(e.buf[:start], uint64(len(e.tmp))), e.tmp...)
	}
}

// fields reads the JSON object at pos, and makes its message, which is in tmp and has to take the place of what is
// behind buf now. It returns false if there is none.
func (e *transcoder) fields(p *plan) bool {
	if e.peek() != '{' {
		e.fail(&schema.Type{Kind: schema.Struct}, p.goName+" is no JSON object")
		return false
	}
	e.pos++
	start, base := len(e.buf), len(e.cuts)
	e.cuts = append(e.cuts, make([]cut, len(p.fields))...)
	next := 0 // where the search for the next member begins
	for e.peek() == '"' {
		if e.pos == e.splice {
			e.version(p, base)
		}
		key := e.text()
		if e.pos++; e.pos >= len(e.in) { // a colon
			break
		}
		at, known := p.find(next, key)
		if next = at; known {
			next++
		}
		if !known || p.fields[at].none {
			e.skip()
		} else {
			from := len(e.buf)
			if e.peek() == 'n' {
				e.pos += len("null")
				e.buf = append(e.buf, p.fields[at].null...)
			} else {
				e.field(&p.fields[at])
			}
			e.cuts[base+at] = cut{from, len(e.buf)}
		}
		if e.peek() == ',' {
			e.pos++
		}
	}
	if e.peek() != '}' {
		e.fail(&schema.Type{Kind: schema.Struct}, p.goName+" does not end")
		return false
	}
	e.pos++
	if invariants.Enabled {
		for _, c := range e.cuts[base:] {
			if c != (cut{}) && (c.start < start || c.end < c.start || c.end > len(e.buf)) {
				invariants.Fail("proto: a field of %s outside of its message", p.goName)
			}
		}
	}
	e.tmp = e.arrange(e.tmp[:0], p, p.order, e.cuts[base:])
	e.cuts = e.cuts[:base]
	return true
}

// arrange appends the fields of a message in order: those that were found, and the absent bytes of the others.
func (e *transcoder) arrange(dst []byte, p *plan, order []step, cuts []cut) []byte {
	for i := range order {
		s := &order[i]
		switch {
		case s.field < 0:
			dst = append(dst, s.tag...)
			start := len(dst)
			dst = insertLength(e.arrange(dst, p, s.embedded, cuts), start)
		case cuts[s.field].end > 0:
			dst = append(dst, e.buf[cuts[s.field].start:cuts[s.field].end]...)
		default:
			dst = append(dst, p.fields[s.field].absent...)
		}
	}
	return dst
}

// version appends resourceVersion to the metadata.
func (e *transcoder) version(p *plan, base int) {
	at, _ := p.find(0, []byte("resourceVersion"))
	from := len(e.buf)
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], e.revision, 10)
	e.buf = append(e.buf, p.fields[at].tag...)
	e.buf = append(e.buf, byte(len(text)))
	e.buf = append(e.buf, text...)
	e.cuts[base+at] = cut{from, len(e.buf)}
}

// field appends the fields of a member: one, or one for each item or entry.
func (e *transcoder) field(f *planned) {
	switch f.shape {
	case single:
		e.buf = append(e.buf, f.tag...)
		e.element(&f.of)
	case repeated:
		e.list(f.tag, &f.of)
	case entries:
		e.entries(f)
	}
}

// list appends the items of a JSON list.
func (e *transcoder) list(tag []byte, of *element) {
	if e.peek() != '[' {
		e.fail(of.t, "is in no list")
		return
	}
	e.pos++
	for e.pos < len(e.in) && e.in[e.pos] != ']' {
		e.buf = append(e.buf, tag...)
		e.element(of)
		if e.peek() == ',' {
			e.pos++
		}
	}
	e.pos++
}

// entries appends the members of a JSON object as messages of a key and a value.
func (e *transcoder) entries(f *planned) {
	if e.peek() != '{' {
		e.fail(f.of.t, "is in no map")
		return
	}
	e.pos++
	for e.peek() == '"' {
		e.buf = append(e.buf, f.tag...)
		start := len(e.buf)
		key := e.text()
		e.buf = append(e.buf, firstTag)
		e.buf = binary.AppendUvarint(e.buf, uint64(len(key)))
		e.buf = append(e.buf, key...)
		if e.pos++; e.peek() == 'n' && f.of.t.Kind == schema.Bytes {
			e.pos += len("null") // the bytes can be null, which differs from empty
		} else {
			e.buf = append(e.buf, 2<<3|byte(wireType(f.of.t)))
			e.element(&f.of)
		}
		e.buf = insertLength(e.buf, start)
		if e.peek() == ',' {
			e.pos++
		}
	}
	e.pos++
}

// element appends one value after its tag.
func (e *transcoder) element(of *element) {
	if e.peek() == 'n' {
		e.pos += len("null")
		e.buf = of.appendZero(e.buf)
		return
	}
	switch of.t.Kind {
	case schema.String:
		text := e.string(of.t)
		e.buf = binary.AppendUvarint(e.buf, uint64(len(text)))
		e.buf = append(e.buf, text...)
	case schema.Int:
		e.buf = binary.AppendUvarint(e.buf, uint64(e.integer(of.t)))
	case schema.Bool:
		e.bool(of.t)
	case schema.Float:
		e.float(of.t)
	case schema.Struct:
		e.sized(of.plan)
	default:
		start := len(e.buf)
		switch of.t.Kind {
		case schema.List:
			e.list(of.item.tag, &of.item.of)
		case schema.Any:
			if of.t.Either == nil {
				e.raw(of.t)
			} else {
				e.either(of)
			}
		default:
			e.special(of.t)
		}
		e.buf = insertLength(e.buf, start)
	}
}

// special appends the types whose JSON form differs from that on the wire.
func (e *transcoder) special(t *schema.Type) {
	switch t.Kind {
	case schema.Bytes:
		decoded, err := base64.StdEncoding.AppendDecode(e.buf, e.string(t))
		if err != nil {
			e.fail(t, err.Error())
			return
		}
		e.buf = decoded
	case schema.Quantity:
		text := e.string(t)
		e.buf = append(e.buf, firstTag)
		e.buf = binary.AppendUvarint(e.buf, uint64(len(text)))
		e.buf = append(e.buf, text...)
	case schema.IntOrString:
		e.intOrString(t)
	default: // Time, MicroTime
		e.time(t)
	}
}

// raw appends the JSON itself, for RawExtension, FieldsV1 and JSON.
func (e *transcoder) raw(t *schema.Type) {
	start := e.pos
	e.skip()
	text := e.in[start:e.pos]
	if e.fieldsV1 != nil && t.GoName == "FieldsV1" {
		e.tmp = e.fieldsV1(e.tmp[:0], text)
		text = e.tmp
	}
	e.buf = append(e.buf, firstTag)
	e.buf = binary.AppendUvarint(e.buf, uint64(len(text)))
	e.buf = append(e.buf, text...)
}

// either appends the message of a value of one of two forms. The boolean is always written, and is true beside an
// object.
func (e *transcoder) either(of *element) {
	either := of.t.Either
	switch c := e.peek(); {
	case c == '{' && either.Other.Kind == schema.Bool:
		e.buf = append(append(e.buf, of.item.tag...), 1)
		fallthrough
	case c == '{':
		e.buf = append(e.buf, tagOf(either.ObjectNumber, protowire.BytesType)...)
		e.sized(of.plan)
	case either.Other.Kind == schema.List:
		e.list(of.item.tag, &of.item.of)
	default:
		e.buf = append(e.buf, of.item.tag...)
		e.element(&of.item.of)
	}
}

func (e *transcoder) intOrString(t *schema.Type) {
	var kind, number uint64
	var text []byte
	if e.peek() == '"' {
		kind, text = 1, e.text()
	} else {
		number = uint64(e.integer(t))
	}
	e.buf = protowire.AppendVarint(protowire.AppendTag(e.buf, 1, protowire.VarintType), kind)
	e.buf = protowire.AppendVarint(protowire.AppendTag(e.buf, 2, protowire.VarintType), number)
	e.buf = protowire.AppendBytes(protowire.AppendTag(e.buf, 3, protowire.BytesType), text)
}

// time appends the seconds and the nanoseconds; a Time has only seconds.
func (e *transcoder) time(t *schema.Type) {
	text := e.string(t)
	moment, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		e.fail(t, err.Error())
		return
	}
	nanos := 0
	if t.Kind == schema.MicroTime {
		nanos = moment.Nanosecond() / 1000 * 1000
	}
	e.buf = protowire.AppendVarint(protowire.AppendTag(e.buf, 1, protowire.VarintType), uint64(moment.Unix()))
	e.buf = protowire.AppendVarint(protowire.AppendTag(e.buf, 2, protowire.VarintType), uint64(nanos))
}

func (e *transcoder) integer(t *schema.Type) int64 {
	start := e.pos
	if e.peek() == '-' {
		e.pos++
	}
	for e.pos < len(e.in) && e.in[e.pos] >= '0' && e.in[e.pos] <= '9' {
		e.pos++
	}
	n, err := strconv.ParseInt(string(e.in[start:e.pos]), 10, 64)
	if err != nil {
		e.fail(t, err.Error())
	}
	return n
}

func (e *transcoder) bool(t *schema.Type) {
	switch e.peek() {
	case 't':
		e.pos += len("true")
		e.buf = append(e.buf, 1)
	case 'f':
		e.pos += len("false")
		e.buf = append(e.buf, 0)
	default:
		e.fail(t, "is none")
	}
}

func (e *transcoder) float(t *schema.Type) {
	start := e.pos
	e.skip()
	f, err := strconv.ParseFloat(string(e.in[start:e.pos]), 64)
	if err != nil {
		e.fail(t, err.Error())
		return
	}
	e.buf = protowire.AppendFixed64(e.buf, math.Float64bits(f))
}

// string is the text at pos; any other value is an error. It is valid until the next text is read or the next message
// is complete.
func (e *transcoder) string(t *schema.Type) []byte {
	if e.peek() != '"' {
		e.fail(t, "is no string")
		return nil
	}
	return e.text()
}

// text is the JSON string at pos; it is a slice of the input if it contains no escape.
func (e *transcoder) text() []byte {
	start := e.pos + 1
	end := bytes.IndexByte(e.in[start:], '"')
	if end < 0 {
		e.fail(&schema.Type{Kind: schema.String}, "does not end")
		return nil
	}
	end += start
	if e.escape < start {
		e.escape = len(e.in)
		if at := bytes.IndexByte(e.in[start:], '\\'); at >= 0 {
			e.escape = start + at
		}
	}
	if e.escape >= end {
		e.pos = end + 1
		return e.in[start:end]
	}
	e.skip()
	e.tmp = object.AppendUnescaped(e.tmp[:0], e.in[start:max(start, e.pos-1)])
	return e.tmp
}

// skip moves past the value at pos.
func (e *transcoder) skip() { e.pos = object.Skip(e.in, e.pos) }

// insertLength inserts the length of b[start:] in front of it. How many bytes a length takes depends on the length, so
// that no space can be reserved for it beforehand; nearly always it is one or two.
func insertLength(b []byte, start int) []byte {
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(b)-start))
	return slices.Insert(b, start, length[:n]...)
}
