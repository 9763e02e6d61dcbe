package proto

import (
	"google.golang.org/protobuf/encoding/protowire"

	"plinth/schema"
)

// The metadata of every object is field 1 of its message, which therefore begins with it. So metadata can be replaced
// or cut without reading the rest.

// Metadata is the field with the metadata, tag and length included, of the message of an object; nil if there is no
// message.
func Metadata(message []byte) []byte {
	if len(message) == 0 {
		return nil
	}
	_, n := protowire.ConsumeBytes(message[1:])
	return message[:1+n]
}

// AppendMetadata appends the same field, made from the metadata alone: meta is the compiled ObjectMeta, data its
// canonical JSON, which may be followed by more.
func AppendMetadata(dst []byte, meta *schema.Type, data []byte, splice int, revision int64) ([]byte, error) {
	dst = append(dst, firstTag)
	start := len(dst)
	dst, err := AppendMessage(dst, meta, data, splice, revision)
	return insertLength(dst, start), err
}

// managedFields is the number of the last field of ObjectMeta.
const managedFields = 17

// AppendLean appends the message of an object without metadata.managedFields.
func AppendLean(dst, message []byte) []byte {
	field := Metadata(message)
	metadata, _ := protowire.ConsumeBytes(field[1:])
	at := 0
	for at < len(metadata) {
		number, _, size := protowire.ConsumeField(metadata[at:])
		if number == managedFields {
			break
		}
		at += size
	}
	dst = append(AppendLength(dst, 1, at), metadata[:at]...)
	return append(dst, message[len(field):]...)
}
