package httpapi

import (
	"cmp"
	"io"
	"net/http"

	"plinth/internal/engine"
	"plinth/internal/execution"
	"plinth/internal/wire"
	"plinth/object"
)

// list is a GET of a collection (LIST-3).
func (h *Handler) list(rs *requestState) error {
	media, err := rs.negotiate()
	if err != nil {
		return err
	}
	params, err := rs.listOptions()
	if err != nil {
		return err
	}
	rq := rs.request()
	collection, err := h.Engine.List(rs.ctx, rq, params.ListOptions)
	if err != nil {
		return err
	}
	return rs.writeList(media, rq, collection)
}

// writeList prints a collection while it is read, so it holds one buffer and not the whole list (LIST-8), nor a copy of
// a long item. Only YAML and indented JSON, which are converted as a whole, are first printed into memory.
//
// In protobuf the length of a list precedes it, so Measure reads the collection once before it is printed. Once the
// first bytes are sent, an error can only break the answer off. Therefore everything that can fail happens before: the
// engine has already searched for unreadable objects and converted old ones.
func (rs *requestState) writeList(media wire.Media, rq *engine.Request, c *engine.Collection) error {
	if media.Form == wire.AsPartial {
		return notTheForm("you requested PartialObjectMetadata, but the requested object is a list (" +
			rq.Resource.ListKind + ")")
	}
	table, err := rs.table(media, rq)
	if err != nil {
		return err
	}
	if table != nil {
		if c.Items, err = table.Arrange(c.Items); err != nil {
			return err
		}
		if err := c.Err(); err != nil {
			return err
		}
	}
	meta := wire.ListMeta{Revision: c.Revision, Continue: c.Continue, Remaining: c.Remaining}
	if media.Form == wire.Plain { // in the reference, too, Tables and PartialObjectMetadataLists do not contain it
		meta.Shard = c.Shard
	}
	if err := rs.recordList(media, rq, c, meta); err != nil {
		return err
	}
	printer := wire.NewList(rq.Resource, media, table)
	printer.Cache = rs.h.cache
	if err := printer.Measure(c.Items); err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	if media.Encoding == wire.YAML || media.Pretty {
		text := printer.Head(nil, meta)
		for item := range c.Items {
			if text, err = printer.Item(text, item); err != nil {
				return err
			}
		}
		if err := cmp.Or(c.Err(), rs.ctx.Err()); err != nil {
			return err
		}
		return rs.sendParts(http.StatusOK, media, &wire.Parts{Buf: printer.Tail(text)}, c.Made)
	}
	s := newStream(rs, media, c.Made)
	defer s.end()
	s.text.Buf = printer.Head(s.text.Buf, meta)
	for item := range c.Items {
		if err := printer.ItemParts(&s.text, item); err != nil {
			return err
		}
		if s.text.Len() >= compressFrom {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	s.text.Buf = printer.Tail(s.text.Buf)
	return s.finish()
}

// stream writes an answer of unknown length through a buffer. An answer that fits into the buffer is sent in one piece,
// with its length; a longer one may be compressed on the way.
//
//	out = nil  ⇔  nothing was written, so the answer can still become an error
type stream struct {
	rs    *requestState
	media wire.Media
	held  *[]byte // the buffer of the pool, with which text begins
	text  wire.Parts
	// cbor is a part of text converted to CBOR.
	cbor  []byte
	made  int // bytes of the items that belong to this answer alone
	guard *guard
	out   io.Writer // nil until the first flush
	gz    *compressor
}

// newStream takes a buffer from the pool; end gives it back.
func newStream(rs *requestState, media wire.Media, made int) *stream {
	held := largeBuffers.Get().(*[]byte)
	return &stream{rs: rs, media: media, held: held, text: wire.Parts{Buf: *held}, made: made}
}

// private is how many bytes the answer holds while it is written, and no other answer has.
func (s *stream) private() int {
	n := s.made + s.text.Private() + cap(s.cbor)
	if s.gz != nil {
		n += compressorBytes
	}
	return n
}

// flush writes out the buffer, unless the context of the request has ended. The first flush sends the header.
func (s *stream) flush() error {
	if err := s.rs.ctx.Err(); err != nil {
		return err
	}
	if s.out == nil {
		s.guard = s.rs.guard()
		s.rs.w.Header()["Content-Type"] = contentTypes[s.media.Encoding]
		s.out = s.rs
		if s.text.Len() >= compressFrom && s.rs.compresses() {
			s.gz = s.rs.compressor()
			s.out = s.gz
		}
		s.rs.WriteHeader(http.StatusOK)
		if s.media.Encoding == wire.CBOR {
			s.cbor = object.AppendCBORStart(s.cbor)
		}
	}
	if s.media.Encoding == wire.CBOR {
		s.cbor = object.AppendCBOR(s.cbor, s.text.Buf)
	}
	s.guard.arm(s.private())
	var err error
	if s.gz != nil { // what is compressed is sent
		err = s.put()
	} else {
		execution.Sending(s.rs.ctx, func() { err = s.put() })
	}
	s.guard.disarm()
	s.text.Reset()
	s.cbor = s.cbor[:0]
	return err
}

// put writes the buffer.
func (s *stream) put() error {
	if s.media.Encoding == wire.CBOR {
		_, err := s.out.Write(s.cbor)
		return err
	}
	return write(s.out, &s.text)
}

// finish writes the rest of the answer.
func (s *stream) finish() error {
	if s.out == nil {
		return s.rs.sendParts(http.StatusOK, s.media, &s.text, s.made)
	}
	if err := s.flush(); err != nil {
		return err
	}
	if s.gz == nil {
		return nil
	}
	s.guard.arm(s.private())
	return s.gz.Close()
}

// end gives back what the stream held.
func (s *stream) end() {
	if s.guard != nil {
		s.guard.end()
	}
	if s.gz != nil {
		releaseCompressor(s.gz)
	}
	*s.held = s.text.Buf[:0]
	releaseLarge(s.held)
}
