//go:build mutants

package schema

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// Protobuf without a schema, for damaging messages.

// envelopeMagic begins a body.
const envelopeMagic = "k8s\x00"

// wireNode is a field of an encoded message: varints may be longer than necessary.
type wireNode struct {
	tag              uint64
	tagLen, valueLen int    // lengths of the varints for the tag and for the value or its length
	value            uint64 // of a varint
	bytes            []byte // of other fields that are not messages
	message          *wireMessage
}

// wireMessage is a message, and the bytes after the fields that can be parsed.
type wireMessage struct {
	fields []*wireNode
	rest   []byte
}

// parseWire reads as much of a message as it can.
func parseWire(b []byte) *wireMessage {
	m := &wireMessage{}
	for len(b) > 0 {
		f := &wireNode{}
		rest := b
		f.tag, f.tagLen = binary.Uvarint(rest)
		if f.tagLen <= 0 || f.tag>>3 == 0 {
			break
		}
		rest = rest[f.tagLen:]
		size := 0
		switch f.tag & 7 {
		case 0:
			f.value, f.valueLen = binary.Uvarint(rest)
			if f.valueLen <= 0 {
				size = -1
			}
		case 1:
			size = 8
		case 5:
			size = 4
		case 2:
			f.value, f.valueLen = binary.Uvarint(rest)
			size = int(min(f.value, 1<<30))
			if f.valueLen <= 0 {
				size = -1
			}
		case 3, 4:
		default:
			size = -1
		}
		if size < 0 || f.valueLen+size > len(rest) {
			break
		}
		rest = rest[f.valueLen:]
		f.bytes = rest[:size]
		if f.tag&7 == 2 {
			if inner := parseWire(f.bytes); len(inner.fields) > 0 {
				f.message, f.bytes = inner, nil
			}
		}
		b = rest[size:]
		m.fields = append(m.fields, f)
	}
	m.rest = b
	return m
}

func (m *wireMessage) append(dst []byte) []byte {
	for _, f := range m.fields {
		dst = f.append(dst)
	}
	return append(dst, m.rest...)
}

func (f *wireNode) append(dst []byte) []byte {
	dst = appendLong(dst, f.tag, f.tagLen)
	switch f.tag & 7 {
	case 0:
		return appendLong(dst, f.value, f.valueLen)
	case 2:
		content := f.bytes
		if f.message != nil {
			content = f.message.append(nil)
		}
		return append(appendLong(dst, uint64(len(content)), f.valueLen), content...)
	}
	return append(dst, f.bytes...)
}

// appendLong appends a varint of at least size bytes.
func appendLong(dst []byte, v uint64, size int) []byte {
	start := len(dst)
	dst = binary.AppendUvarint(dst, v)
	for len(dst)-start < size {
		dst[len(dst)-1] |= 0x80
		dst = append(dst, 0)
	}
	return dst
}

// all returns a message and all messages below it.
func (m *wireMessage) all() []*wireMessage {
	list := []*wireMessage{m}
	for _, f := range m.fields {
		if f.message != nil {
			list = append(list, f.message.all()...)
		}
	}
	return list
}

func (m *wireMessage) clone() *wireMessage { return parseWire(m.append(nil)) }

var oddNumbers = []uint64{0, 1, 2, 3, 0x7f, 0x80, 1 << 31, 1<<31 - 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0),
	253402300800}

var oddTexts = []string{"", "x", "\xff", "a\xc3", "{}", "[1]", "{", "5", "1k", "2020-01-02T03:04:05Z", "\x0a\x00",
	"\x00", "\x08\x01", "\x80", "\x08\x80", "\x0b\x0c", "\x12\x01x", "\x01", "\x05\x05\x05",
	"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", "\x01\x00\xff\xff\xff\xff\x1f",
	"\x9c\xce\xe6\xf6\xc1\x17"}

// damaged changes one thing in a body: a field of a message in it, or bytes.
func damaged(random *rand.Rand, body []byte) []byte {
	if random.IntN(12) == 0 || !bytes.HasPrefix(body, []byte(envelopeMagic)) {
		return damagedBytes(random, body)
	}
	whole := parseWire(body[len(envelopeMagic):])
	messages := whole.all()
	m := messages[random.IntN(len(messages))]
	if random.IntN(6) == 0 {
		m = messages[random.IntN(min(3, len(messages)))]
	}
	m.damage(random)
	return whole.append([]byte(envelopeMagic))
}

func (m *wireMessage) damage(random *rand.Rand) {
	if len(m.fields) == 0 || random.IntN(8) == 0 {
		m.fields = append(m.fields, oddField(random))
		return
	}
	i := random.IntN(len(m.fields))
	f := m.fields[i]
	copied := (&wireMessage{fields: []*wireNode{f}}).clone().fields
	switch random.IntN(14) {
	case 0:
		m.fields = slices.Delete(m.fields, i, i+1)
	case 1:
		m.fields = append(m.fields, copied...)
	case 2:
		random.Shuffle(len(m.fields), func(i, j int) { m.fields[i], m.fields[j] = m.fields[j], m.fields[i] })
	case 3: // another wire type
		f.tag = f.tag&^7 | uint64(random.IntN(8))
		f.fit(random)
	case 4: // another number
		f.tag = f.tag&7 | []uint64{0, 1, 2, 3, 4, 17, 200, 1<<29 - 1, 1 << 32, 1 << 60}[random.IntN(10)]<<3
	case 5: // longer numbers than needed
		f.tagLen, f.valueLen = random.IntN(12), random.IntN(12)
	case 6: // in two parts
		if f.message != nil && len(copied) == 1 && copied[0].message != nil {
			cut := random.IntN(len(f.message.fields) + 1)
			f.message.fields = f.message.fields[:cut]
			copied[0].message.fields = copied[0].message.fields[cut:]
			m.fields = slices.Insert(m.fields, i+1+random.IntN(len(m.fields)-i), copied[0])
		}
	case 7: // a run of numbers
		if f.tag&7 == 0 {
			run := binary.AppendUvarint(binary.AppendUvarint(nil, f.value), oddNumbers[random.IntN(len(oddNumbers))])
			*f = wireNode{tag: f.tag | 2, bytes: run}
		}
	case 8: // a message that does not end
		if f.message != nil {
			content := f.message.append(nil)
			f.message, f.bytes = nil, content[:random.IntN(len(content)+1)]
		}
	case 9:
		m.rest = append(slices.Clone(m.rest), oddTexts[random.IntN(len(oddTexts))]...)
	case 10: // empty
		f.message, f.bytes = nil, nil
		f.fit(random)
	default:
		f.value = oddNumbers[random.IntN(len(oddNumbers))]
		if f.tag&7 == 2 {
			f.message, f.bytes = nil, []byte(oddTexts[random.IntN(len(oddTexts))])
		}
	}
}

// fit gives the field a value of its wire type.
func (f *wireNode) fit(random *rand.Rand) {
	switch f.tag & 7 {
	case 1:
		f.bytes = binary.LittleEndian.AppendUint64(nil, oddNumbers[random.IntN(len(oddNumbers))])
	case 5:
		f.bytes = binary.LittleEndian.AppendUint32(nil, uint32(oddNumbers[random.IntN(len(oddNumbers))]))
	case 3:
		f.bytes = oddGroup(random, 3)
	case 2:
	default:
		f.bytes = nil
	}
	if f.tag&7 != 2 {
		f.message = nil
	}
}

// oddField returns a field with a number that few messages have.
func oddField(random *rand.Rand) *wireNode {
	number := []uint64{1, 2, 3, 4, 5, 100, 1000}[random.IntN(7)]
	f := &wireNode{tag: number<<3 | uint64(random.IntN(6)), value: oddNumbers[random.IntN(len(oddNumbers))]}
	if f.tag&7 == 2 {
		f.bytes = []byte(oddTexts[random.IntN(len(oddTexts))])
	}
	f.fit(random)
	return f
}

// oddGroup returns the contents of a group, mostly with its end.
func oddGroup(random *rand.Rand, depth int) []byte {
	var b []byte
	for range random.IntN(3) {
		switch typ := uint64(random.IntN(8)); {
		case typ == 3 && depth > 0:
			b = append(append(b, 0x1b), oddGroup(random, depth-1)...)
		default:
			f := &wireNode{tag: 1<<3 | typ, value: oddNumbers[random.IntN(len(oddNumbers))], bytes: []byte("12345678")}
			switch typ {
			case 5:
				f.bytes = f.bytes[:4]
			case 0, 3, 4, 6, 7:
				f.bytes = nil
			}
			b = f.append(b)
		}
	}
	if random.IntN(8) > 0 {
		b = append(b, []byte{0x0c, 0x1c, 0xa4}[random.IntN(2)])
	}
	return b
}

func damagedBytes(random *rand.Rand, body []byte) []byte {
	if len(body) == 0 {
		return body
	}
	at := random.IntN(len(body))
	if random.IntN(3) == 0 {
		at = random.IntN(min(len(body), 8))
	}
	switch random.IntN(3) {
	case 0:
		return body[:at]
	case 1:
		return slices.Delete(slices.Clone(body), at, min(len(body), at+1+random.IntN(4)))
	}
	body = slices.Clone(body)
	body[at] = byte(random.IntN(256))
	return body
}

// smallerBody returns the n-th of the bodies that have one field less, outer fields first; for short bodies, those with
// one byte less follow.
func smallerBody(body []byte, n int) []byte {
	if bytes.HasPrefix(body, []byte(envelopeMagic)) {
		whole := parseWire(body[len(envelopeMagic):])
		for level := []*wireMessage{whole}; len(level) > 0; {
			var below []*wireMessage
			for _, m := range level {
				if n < len(m.fields) {
					m.fields = slices.Delete(m.fields, n, n+1)
					return whole.append([]byte(envelopeMagic))
				}
				n -= len(m.fields)
				for _, f := range m.fields {
					if f.message != nil {
						below = append(below, f.message)
					}
				}
			}
			level = below
		}
	}
	if n < len(body) && len(body) < 100 {
		return slices.Delete(slices.Clone(body), n, n+1)
	}
	return nil
}
