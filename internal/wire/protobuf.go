package wire

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/proto"
	"plinth/schema"
)

// Type is a compiled type, for callers that only pass one on.
type Type = *schema.Type

// DeleteOptions is the type of a delete's body.
func DeleteOptions() Type { return gotypes.Of[metav1.DeleteOptions]() }

// Status is the type of the response to errors and operations.
func Status() Type { return gotypes.Of[metav1.Status]() }

// message is the message of an object of a type. It may be shared by the cache and must not be changed.
func (c *EncodedCache) message(t Type, o *engine.Object) ([]byte, error) {
	if known := encoded(o, slotMessage); known != nil {
		return known, nil
	}
	b, err := proto.AppendMessage(nil, t, o.Data(), engine.LayoutOf(o).Splice, o.Revision)
	if err == nil {
		c.keep(o, slotMessage, b)
	}
	return b, err
}

// AppendProtobuf appends an object in its envelope. The message is not cached: a client that reads a single object
// seldom reads it again soon.
func AppendProtobuf(dst []byte, t Type, o *engine.Object, lean bool) ([]byte, error) {
	var none *EncodedCache
	b, err := none.message(t, o)
	if err != nil {
		return dst, err
	}
	if lean {
		b = proto.AppendLean(nil, b)
	}
	return envelopeOf(o).Append(dst, b), nil
}

// envelopeOf is the envelope of an object, whose bytes begin with its type.
func envelopeOf(o *engine.Object) proto.Envelope {
	return proto.EnvelopeOf(o.Append(make([]byte, 0, 128), 0, engine.LayoutOf(o).Item))
}

// AppendProtobufPartial appends the metadata of an object alone (MED-7).
func AppendProtobufPartial(dst []byte, o *engine.Object, version string, lean bool) ([]byte, error) {
	b, err := partialMessage(o)
	if err != nil {
		return dst, err
	}
	if lean {
		b = proto.AppendLean(nil, b)
	}
	return partialEnvelope(version).Append(dst, b), nil
}

// partialEnvelope is the envelope of a PartialObjectMetadata.
func partialEnvelope(version string) proto.Envelope {
	return proto.Envelope{APIVersion: metaGroup + "/" + version, Kind: "PartialObjectMetadata"}
}

// partialMessage is the message of a PartialObjectMetadata: metadata as field 1, with which the message of every object
// begins.
func partialMessage(o *engine.Object) ([]byte, error) {
	if metadata := proto.Metadata(encoded(o, slotMessage)); metadata != nil {
		return metadata, nil
	}
	at := engine.LayoutOf(o)
	start := at.Item + len(metadataKey)
	return proto.AppendMetadata(nil, gotypes.Of[metav1.ObjectMeta](), o.Data()[start:], at.Splice-start, o.Revision)
}

// message is the message of a ListMeta.
func (m *ListMeta) message() []byte {
	var digits [20]byte
	revision := digits[:0]
	if m.Revision != 0 {
		revision = strconv.AppendInt(revision, m.Revision, 10)
	}
	b := proto.AppendText(nil, 1, "") // selfLink
	b = proto.AppendText(b, 2, string(revision))
	b = proto.AppendText(b, 3, m.Continue)
	if m.Remaining != nil {
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(*m.Remaining))
	}
	if m.Shard != "" {
		b = proto.AppendText(b, 5, string(proto.AppendText(nil, 1, m.Shard)))
	}
	return b
}
