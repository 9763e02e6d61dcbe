package wire

import (
	"encoding/binary"

	"plinth/internal/engine"
)

// appendMessage appends the frame of an event about an object.
func (f *Frames) appendMessage(dst []byte, o *engine.Object, e *engine.Event) ([]byte, error) {
	v := envelope{metaGroup + "/" + f.media.Version, "PartialObjectMetadata"}
	if f.media.Form == Plain {
		v = envelopeOf(o.Data)
	}
	message, err := f.message(o, e)
	if err != nil {
		return dst, err
	}
	if f.media.Lean {
		message = appendLean(nil, message)
	}
	return v.appendFrame(dst, e.Type.String(), message), nil
}

// message is what is said of the object of an event: made once for all watchers where they share the record, and once for
// all readers where the object is a stored version as it stands.
func (f *Frames) message(o *engine.Object, e *engine.Event) ([]byte, error) {
	slot := slotMessage
	if f.media.Form == AsPartial {
		slot = slotPartialMessage
	}
	if e.Record != nil {
		if known := e.Record.Memo.Load(slot); known != nil {
			return known, nil
		}
	}
	var message []byte
	var err error
	switch {
	case slot == slotPartialMessage:
		message, err = partialMessage(o)
	case o == e.Object && e.Record == nil: // of the beginning of a watch, which others begin with, too
		message, err = f.Forms.message(f.typ, o)
	default:
		var none *Forms
		message, err = none.message(f.typ, o)
	}
	if err == nil && e.Record != nil {
		e.Record.Memo.Store(slot, message)
	}
	return message, err
}

// appendMessageFrame appends the frame of an object that is nobody else's, given as canonical JSON.
func appendMessageFrame(dst []byte, event string, t Type, data []byte) ([]byte, error) {
	message, err := appendMessage(nil, t, data, 0, 0)
	if err != nil {
		return dst, err
	}
	return envelopeOf(data).appendFrame(dst, event, message), nil
}

// FrameLength is how many bytes of a frame of protobuf are its length.
const FrameLength = 4

// appendFrame appends a frame: the length in FrameLength bytes, the highest one first, and the message of a WatchEvent with
// its type and the object in its envelope.
// The two fields of the event are of one byte each, as is the one of the RawExtension around the object.
func (v envelope) appendFrame(dst []byte, event string, message []byte) []byte {
	inner := v.size(len(message))
	around := fieldSize(inner)
	dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(len(event))+fieldSize(around)))
	dst = appendField(dst, firstTag, event)
	dst = appendLength(dst, secondTag, around)
	dst = appendLength(dst, firstTag, inner)
	return v.append(dst, message)
}
