package wire

import (
	"encoding/binary"

	"plinth/internal/engine"
	"plinth/internal/proto"
)

// appendMessage appends an event about an object.
func (f *Events) appendMessage(dst []byte, o *engine.Object, e *engine.Event) ([]byte, error) {
	v := partialEnvelope(f.media.Version)
	if f.media.Form == Plain {
		v = envelopeOf(o)
	}
	message, err := f.message(o, e)
	if err != nil {
		return dst, err
	}
	if f.media.Lean {
		message = proto.AppendLean(nil, message)
	}
	return appendWatchEvent(dst, v, e.Type.String(), message), nil
}

// addMessage is appendMessage in parts, of whole objects.
func (f *Events) addMessage(p *Parts, o *engine.Object, e *engine.Event) error {
	message, err := f.message(o, e)
	if err != nil {
		return err
	}
	shared := e.Record != nil || o == e.Object // see message
	if f.media.Lean {
		message, shared = proto.AppendLean(nil, message), false
	}
	p.Buf = appendWatchEventHead(p.Buf, envelopeOf(o), e.Type.String(), len(message))
	p.add(message, shared)
	p.Buf = append(p.Buf, proto.EnvelopeTail...)
	return nil
}

// message is the message of the object of an event: made once for all watchers that share the record. The initial
// events of a watch have no record; their objects are stored versions, whose messages are cached for all readers.
func (f *Events) message(o *engine.Object, e *engine.Event) ([]byte, error) {
	slot := memoMessage
	if f.media.Form == AsPartial {
		slot = memoPartialMessage
	}
	if e.Record != nil {
		if known := e.Record.Memo.Load(slot); known != nil {
			return known, nil
		}
	}
	var message []byte
	var err error
	switch {
	case slot == memoPartialMessage:
		message, err = partialMessage(o)
	case o == e.Object && e.Record == nil: // an initial event of a watch, which other watches begin with, too
		message, err = f.Cache.message(f.typ, o)
	default:
		var none *EncodedCache
		message, err = none.message(f.typ, o)
	}
	if err == nil && e.Record != nil {
		e.Record.Memo.Store(slot, message)
	}
	return message, err
}

// appendMessageEvent appends an event with an object that no other watch sends, given as canonical JSON.
func appendMessageEvent(dst []byte, event string, t Type, data []byte) ([]byte, error) {
	message, err := proto.AppendMessage(nil, t, data, 0, 0)
	if err != nil {
		return dst, err
	}
	return appendWatchEvent(dst, proto.EnvelopeOf(data), event, message), nil
}

// EventPrefix is the number of bytes at the head of an event in protobuf that hold its length.
const EventPrefix = 4

// appendWatchEvent appends an event: the length in EventPrefix bytes, the highest one first, and the message of a
// WatchEvent with its type and the object in its envelope. The tags of the event's two fields take one byte each, as
// does that of the RawExtension around the object.
func appendWatchEvent(dst []byte, v proto.Envelope, event string, message []byte) []byte {
	dst = append(appendWatchEventHead(dst, v, event, len(message)), message...)
	return append(dst, proto.EnvelopeTail...)
}

// appendWatchEventHead appends the part of an event before a message of n bytes. The tail of the envelope follows the
// message.
func appendWatchEventHead(dst []byte, v proto.Envelope, event string, n int) []byte {
	inner := v.Size(n)
	around := proto.FieldSize(inner)
	dst = binary.BigEndian.AppendUint32(dst, uint32(proto.FieldSize(len(event))+proto.FieldSize(around)))
	dst = proto.AppendText(dst, 1, event)
	dst = proto.AppendLength(dst, 2, around)
	dst = proto.AppendLength(dst, 1, inner)
	return v.AppendHead(dst, n)
}
