package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of a runtime.Unknown, which is around every object. The last two are always empty, and always there.
const (
	typeTag      = 1<<3 | byte(protowire.BytesType)
	rawTag       = 2<<3 | byte(protowire.BytesType)
	envelopeTail = "\x1a\x00\x22\x00"
)

// envelope says what a message is of.
type envelope struct{ apiVersion, kind string }

// typeSize is the size of the message of apiVersion and kind.
func (v envelope) typeSize() int {
	return 1 + protowire.SizeBytes(len(v.apiVersion)) + 1 + protowire.SizeBytes(len(v.kind))
}

// size is how much an envelope around so many bytes takes, with them.
func (v envelope) size(message int) int {
	return len(magic) + 1 + protowire.SizeBytes(v.typeSize()) + 1 + protowire.SizeBytes(message) + len(envelopeTail)
}

// appendHead appends what comes before a message of so many bytes.
func (v envelope) appendHead(dst []byte, message int) []byte {
	dst = append(dst, magic...)
	dst = append(dst, typeTag)
	dst = binary.AppendUvarint(dst, uint64(v.typeSize()))
	dst = append(dst, stringTag)
	dst = protowire.AppendString(dst, v.apiVersion)
	dst = append(dst, 2<<3|byte(protowire.BytesType))
	dst = protowire.AppendString(dst, v.kind)
	dst = append(dst, rawTag)
	return binary.AppendUvarint(dst, uint64(message))
}

// append appends a message in its envelope.
func (v envelope) append(dst, message []byte) []byte {
	dst = v.appendHead(dst, len(message))
	dst = append(dst, message...)
	return append(dst, envelopeTail...)
}

// envelopeOf reads apiVersion and kind of canonical JSON, where they are in front.
func envelopeOf(data []byte) (v envelope) {
	for pos := 1; pos < len(data) && data[pos] == '"'; pos++ {
		e := transcoder{in: data, pos: pos, splice: -1}
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
		pos = e.pos
	}
	return v
}

// AppendProtobuf appends an object in its envelope. It is given as canonical JSON.
func AppendProtobuf(dst []byte, t Type, data []byte) ([]byte, error) {
	message, err := appendMessage(nil, t, data, 0, 0)
	if err != nil {
		return dst, err
	}
	return envelopeOf(data).append(dst, message), nil
}
