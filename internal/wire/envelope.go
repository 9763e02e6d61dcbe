package wire

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
)

// The tags of what stands around objects: field 1 or 2 with bytes.
const (
	firstTag  = 1<<3 | byte(protowire.BytesType)
	secondTag = 2<<3 | byte(protowire.BytesType)
)

// An envelope is what is around every object: a magic number, and a runtime.Unknown of apiVersion and kind, the message,
// and two texts that are always empty and always there.
type envelope struct{ apiVersion, kind string }

const envelopeTail = "\x1a\x00\x22\x00"

// fieldSize is the size of a field with so many bytes, of one of the first fifteen numbers.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

// typeSize is the size of the message of apiVersion and kind.
func (v envelope) typeSize() int { return fieldSize(len(v.apiVersion)) + fieldSize(len(v.kind)) }

// size is how much the envelope of a message of so many bytes takes, with the message.
func (v envelope) size(message int) int {
	return len(magic) + fieldSize(v.typeSize()) + fieldSize(message) + len(envelopeTail)
}

// appendHead appends what comes before a message of so many bytes. envelopeTail comes behind it.
func (v envelope) appendHead(dst []byte, message int) []byte {
	dst = append(dst, magic...)
	dst = appendLength(dst, firstTag, v.typeSize())
	dst = appendField(dst, firstTag, v.apiVersion)
	dst = appendField(dst, secondTag, v.kind)
	return appendLength(dst, secondTag, message)
}

// append appends a message in its envelope.
func (v envelope) append(dst, message []byte) []byte {
	dst = v.appendHead(dst, len(message))
	dst = append(dst, message...)
	return append(dst, envelopeTail...)
}

// appendLength begins a field of so many bytes.
func appendLength(dst []byte, tag byte, size int) []byte {
	return binary.AppendUvarint(append(dst, tag), uint64(size))
}

func appendField(dst []byte, tag byte, text string) []byte {
	return append(appendLength(dst, tag, len(text)), text...)
}

// envelopeOf reads apiVersion and kind of canonical JSON, where they are in front.
func envelopeOf(data []byte) (v envelope) {
	e := transcoder{in: data, pos: 1, splice: -1}
	for e.peek() == '"' {
		key := string(e.text())
		if key != "apiVersion" && key != "kind" {
			break
		}
		e.pos++
		value := string(e.text())
		if key == "kind" {
			v.kind = value
		} else {
			v.apiVersion = value
		}
		e.pos++
	}
	return v
}

// AppendProtobufJSON appends an object in its envelope. It is given as canonical JSON.
func AppendProtobufJSON(dst []byte, t Type, data []byte) ([]byte, error) {
	message, err := appendMessage(nil, t, data, 0, 0)
	if err != nil {
		return dst, err
	}
	return envelopeOf(data).append(dst, message), nil
}

// message is the message of an object of a type. It may be a kept one, which is not to be changed.
func (f *Forms) message(t Type, o *engine.Object) ([]byte, error) {
	if known := kept(o, formProtobuf); known != nil {
		return known, nil
	}
	b, err := appendMessage(nil, t, o.Data, o.Sidecar.Splice, o.Revision)
	if err == nil {
		f.keep(o, formProtobuf, b)
	}
	return b, err
}

// AppendProtobuf appends an object in its envelope. It is not kept: who reads one object does not read it again so soon.
func AppendProtobuf(dst []byte, t Type, o *engine.Object, lean bool) ([]byte, error) {
	var none *Forms
	b, err := none.message(t, o)
	if err != nil {
		return dst, err
	}
	if lean {
		b = appendLean(nil, b)
	}
	return envelopeOf(o.Data).append(dst, b), nil
}

// AppendProtobufPartial appends the metadata of an object alone (MED-7).
func AppendProtobufPartial(dst []byte, o *engine.Object, version string, lean bool) ([]byte, error) {
	b, err := partialMessage(o)
	if err != nil {
		return dst, err
	}
	if lean {
		b = appendLean(nil, b)
	}
	return envelope{metaGroup + "/" + version, "PartialObjectMetadata"}.append(dst, b), nil
}

// partialMessage is the message of a PartialObjectMetadata: metadata as field 1, which is what the message of every object
// begins with.
func partialMessage(o *engine.Object) ([]byte, error) {
	if known := kept(o, formProtobuf); known != nil {
		if _, n := protowire.ConsumeBytes(known[1:]); n > 0 && known[0] == firstTag {
			return known[:1+n], nil
		}
	}
	start := o.Sidecar.Item + len(metadataKey)
	b, err := appendMessage([]byte{firstTag}, gotypes.Of[metav1.ObjectMeta](), o.Data[start:], o.Sidecar.Splice-start, o.Revision)
	return insertLength(b, 1), err
}

// managedTag begins an entry of managedFields: field 17 of ObjectMeta, and the last one.
const managedTag = 17<<3 | uint64(protowire.BytesType)

// appendLean appends a message without what its first field, the metadata, has of managedFields.
func appendLean(dst, message []byte) []byte {
	metadata, n := protowire.ConsumeBytes(message[1:])
	if n < 0 || message[0] != firstTag {
		return append(dst, message...) // nothing of ours
	}
	at := 0
	for at < len(metadata) {
		tag, size := protowire.ConsumeVarint(metadata[at:])
		if size < 0 || tag == managedTag {
			break
		}
		number, typ := protowire.DecodeTag(tag)
		size += max(0, protowire.ConsumeFieldValue(number, typ, metadata[at+size:]))
		at += size
	}
	dst = append(appendLength(dst, firstTag, at), metadata[:at]...)
	return append(dst, message[1+n:]...)
}

// message is the message of a ListMeta.
func (m *ListMeta) message() []byte {
	var digits [20]byte
	revision := digits[:0]
	if m.Revision != 0 {
		revision = strconv.AppendInt(revision, m.Revision, 10)
	}
	b := appendField(nil, firstTag, "") // selfLink
	b = appendField(b, secondTag, string(revision))
	b = appendField(b, 3<<3|byte(protowire.BytesType), m.Continue)
	if m.Remaining != nil {
		b = protowire.AppendVarint(append(b, 4<<3|byte(protowire.VarintType)), uint64(*m.Remaining))
	}
	return b
}
