package proto

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/schema"
)

// firstTag is the tag of field 1 of a message, if that holds bytes.
const firstTag = 1<<3 | byte(protowire.BytesType)

// Envelope is the bytes around the message of an object: a magic number, and a runtime.Unknown with apiVersion and
// kind, the message, and two texts (contentEncoding, contentType) that are always written and always empty.
type Envelope struct{ APIVersion, Kind string }

// EnvelopeTail is the part of an envelope after the message.
const EnvelopeTail = "\x1a\x00\x22\x00"

// typeSize is the size of the message of apiVersion and kind.
func (v Envelope) typeSize() int { return FieldSize(len(v.APIVersion)) + FieldSize(len(v.Kind)) }

// Size is the size of an envelope with a message of n bytes in it.
func (v Envelope) Size(message int) int {
	return len(magic) + FieldSize(v.typeSize()) + FieldSize(message) + len(EnvelopeTail)
}

// AppendHead appends the part of the envelope before a message of n bytes. EnvelopeTail follows the message.
func (v Envelope) AppendHead(dst []byte, message int) []byte {
	dst = append(dst, magic...)
	dst = AppendLength(dst, 1, v.typeSize())
	dst = AppendText(dst, 1, v.APIVersion)
	dst = AppendText(dst, 2, v.Kind)
	return AppendLength(dst, 2, message)
}

// Append appends a message in its envelope.
func (v Envelope) Append(dst, message []byte) []byte {
	dst = v.AppendHead(dst, len(message))
	dst = append(dst, message...)
	return append(dst, EnvelopeTail...)
}

// EnvelopeOf reads apiVersion and kind from canonical JSON, which begins with them.
func EnvelopeOf(data []byte) (v Envelope) {
	e := transcoder{in: data, pos: 1, splice: -1}
	for e.peek() == '"' {
		key := string(e.text())
		if key != "apiVersion" && key != "kind" {
			break
		}
		e.pos++
		value := string(e.text())
		if key == "kind" {
			v.Kind = value
		} else {
			v.APIVersion = value
		}
		e.pos++
	}
	return v
}

// AppendObject appends an object in its envelope. It is given as canonical JSON.
func AppendObject(dst []byte, t *schema.Type, data []byte) ([]byte, error) {
	message, err := AppendMessage(nil, t, data, 0, 0)
	if err != nil {
		return dst, err
	}
	return EnvelopeOf(data).Append(dst, message), nil
}

// AppendStored is AppendObject with sets of managedFields as fieldsV1 appends them: package object sorts their members
// by text, the reference by what they select.
func AppendStored(
	dst []byte, t *schema.Type, data []byte, fieldsV1 func(dst, text []byte) []byte,
) ([]byte, error) {
	e := newTranscoder(data)
	defer e.release()
	e.fieldsV1 = fieldsV1
	if e.message(planOf(t)); e.err != nil {
		return dst, e.err
	}
	envelope := EnvelopeOf(data)
	dst = slices.Grow(dst, envelope.Size(len(e.buf)))
	return envelope.Append(dst, e.buf), nil
}

// FieldSize is the size of a field of n bytes with a number from 1 to 15.
func FieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

// AppendLength begins a field of n bytes with a number from 1 to 15.
func AppendLength(dst []byte, number, size int) []byte {
	return binary.AppendUvarint(append(dst, byte(number)<<3|byte(protowire.BytesType)), uint64(size))
}

// AppendText appends a field of text with a number from 1 to 15.
func AppendText(dst []byte, number int, text string) []byte {
	return append(AppendLength(dst, number, len(text)), text...)
}
