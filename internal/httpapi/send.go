package httpapi

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/proto"
	"plinth/internal/wire"
	"plinth/object"
)

// compressFrom is the size from which on an answer is compressed for clients that accept gzip (MED-5).
const compressFrom = 128 << 10

// buffered is the length of answers that net/http buffers, so that writing them does not wait for the client. Its
// buffer has 4 KiB; the difference is for the headers.
const buffered = 3 << 10

// contentTypes are the values of the Content-Type header by encoding, and streamTypes those of a watch. They are made
// once and shared by all answers.
var contentTypes, streamTypes = func() (plain, streams [][]string) {
	for _, e := range wire.Encodings() {
		plain, streams = append(plain, []string{e.String()}), append(streams, []string{e.StreamType()})
	}
	return plain, streams
}()

// negotiate finds the media type in which the client accepts the result of a verb. Verbs call it before they read the
// body or change anything, so that 406 is returned before the request has any effect.
//
// The choice depends on the type (offer): custom objects have no protobuf, and a virtual type has no Table. Accept is
// matched twice, as in the reference: Negotiate takes the first clause that fits (NegotiateOutputMediaType), and
// Literal says whether the reference's router, which runs earlier, would have found a media type at all. The router
// compares letter by letter, so the two refuse different requests, with different texts.
func (rs *requestState) negotiate() (wire.Media, error) {
	accept := rs.r.Header.Get("Accept")
	available := rs.h.offer.MediaTypes()
	if rs.info.verb == "list" || rs.info.verb == "watch" {
		available = rs.h.offer.CollectionTypes()
	}
	if rs.subresource != nil && rs.subresource.Connection != nil { // a log, which is text
		available = slices.Concat([]string{"text/plain"}, available)
	}
	offer := rs.offer()
	offer.NoTables = !rs.resource.Tables(rs.subresource)
	media, ok := offer.Negotiate(accept)
	literal := wire.Literal(accept, available...)
	switch {
	case ok && literal:
		media.Pretty = media.Encoding < wire.Protobuf && (media.Pretty || rs.pretty())
		return media, nil
	case !literal:
		rs.unwarn() // the reference's router refuses this before the type can warn
		return media, wire.NotLiteral(available...)
	}
	return media, apierr.NewNotAcceptable(rs.h.offer.MediaTypes())
}

// offer returns how the objects of this request can be written and read: custom objects, and types that
// kube-apiserver does not have, have no protobuf messages.
func (rs *requestState) offer() wire.Offer {
	offer := rs.h.offer
	kind := rs.resource.Stored
	offer.NoMessages = rs.resource.NoMessages ||
		kind != nil && kind.Custom && (rs.subresource == nil || rs.subresource.Kind == rs.resource.Kind)
	return offer
}

// pretty says whether the answer is indented (MED-9): because of a parameter, or because the User-Agent is curl, Wget
// or a browser.
func (rs *requestState) pretty() bool {
	if strings.Contains(rs.r.URL.RawQuery, "pretty") {
		if text := first(rs.query(), "pretty"); text != "" {
			pretty, err := strconv.ParseBool(text)
			return pretty && err == nil
		}
	}
	agent := rs.r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// table returns the Table that a media type requires, or nil.
func (rs *requestState) table(media wire.Media, rq *engine.Request) (*wire.Table, error) {
	if media.Form != wire.AsTable {
		return nil, nil
	}
	text := first(rs.query(), "includeObject")
	include, ok := wire.ParseInclude(text)
	if !ok {
		return nil, apierr.NewBadRequest("Unable to convert to Table as requested: includeObject: Invalid value: " +
			strconv.Quote(text) + ": must be 'Metadata', 'Object', 'None', or empty")
	}
	t := wire.NewTable(rq, media.Version, include)
	t.Lean = media.Lean
	return t, nil
}

// smallBuffers and largeBuffers keep buffers into which answers are printed. There are two pools, so that small answers
// do not occupy large buffers.
var smallBuffers, largeBuffers = sync.Pool{New: newBuffer(smallBuffer)}, sync.Pool{New: newBuffer(largeBuffer)}

const (
	smallBuffer = 8 << 10
	largeBuffer = compressFrom + 32<<10
	maxBuffer   = 2 * largeBuffer // larger ones are left to the garbage collector
)

func newBuffer(size int) func() any {
	return func() any {
		b := make([]byte, 0, size)
		return &b
	}
}

// buffer takes an empty buffer for an answer of about this size; release gives it back.
func buffer(size int) (b *[]byte, release func(*[]byte)) {
	if size <= smallBuffer {
		return smallBuffers.Get().(*[]byte), releaseSmall
	}
	return largeBuffers.Get().(*[]byte), releaseLarge
}

// releaseSmall and releaseLarge give a buffer back, unless it has grown so large that keeping it would waste memory.
func releaseSmall(b *[]byte) {
	if cap(*b) <= largeBuffer {
		*b = (*b)[:0]
		smallBuffers.Put(b)
	}
}

func releaseLarge(b *[]byte) {
	if cap(*b) <= maxBuffer {
		*b = (*b)[:0]
		largeBuffers.Put(b)
	}
}

// reply answers with the result of a verb on one object.
func (rs *requestState) reply(media wire.Media, rq *engine.Request, result *engine.Result) error {
	if result.Created {
		return rs.replyWith(http.StatusCreated, media, rq, result)
	}
	return rs.replyWith(http.StatusOK, media, rq, result)
}

// replyWith is reply with a status code. The object is printed as the media type demands; most objects are stored
// bytes, into which the resourceVersion is inserted.
func (rs *requestState) replyWith(code int, media wire.Media, rq *engine.Request, result *engine.Result) error {
	if result.Object == nil {
		return rs.sendValue(code, media, rs.answers(rq), result.Status)
	}
	table, err := rs.table(media, rq)
	if err != nil {
		return err
	}
	if media.Form == wire.AsPartials {
		return notTheForm("you requested PartialObjectMetadataList, but the requested object is not a list (" +
			rs.resource.Kind + ")")
	}
	if err := rs.recordObject(media, rq, result.Object); err != nil {
		return err
	}
	if media.Encoding == wire.JSON && media.Form == wire.Plain && !media.Pretty && wire.Long(result.Object) {
		var p wire.Parts
		p.Object(result.Object, media.Lean)
		p.Buf = append(p.Buf, '\n')
		rs.validated(rs.validator(media, result))
		return rs.sendParts(code, media, &p, rs.made(result))
	}
	b, release := buffer(wire.Size(result.Object) + 1)
	defer release(b)
	switch {
	case media.Encoding == wire.Protobuf && media.Form == wire.AsPartial:
		*b, err = wire.AppendProtobufPartial(*b, result.Object, media.Version, media.Lean)
	case media.Encoding == wire.Protobuf:
		*b, err = wire.AppendProtobuf(*b, rs.answers(rq), result.Object, media.Lean)
	case media.Form == wire.AsTable:
		*b, err = wire.AppendTable(*b, result.Object, table)
	case media.Form == wire.AsPartial:
		*b = wire.AppendPartial(*b, result.Object, media.Version, media.Lean)
	default:
		*b = wire.AppendObject(*b, result.Object, media.Lean)
	}
	if err != nil {
		return err
	}
	if media.Encoding != wire.Protobuf {
		*b = append(*b, '\n')
	}
	rs.validated(rs.validator(media, result))
	return rs.sendParts(code, media, &wire.Parts{Buf: *b}, rs.made(result))
}

// made is how many bytes of the object of an answer belong to this answer alone.
func (rs *requestState) made(result *engine.Result) int {
	if result.Made || rs.dryRun {
		return result.Object.Len()
	}
	return 0
}

// answers returns the type of the object in the answer to a request.
func (rs *requestState) answers(rq *engine.Request) wire.Type {
	if sub := rq.Subresource; sub != nil && (sub.Represent != nil || sub.Answer != nil) {
		return sub.Schema()
	}
	return rq.Resource.Schema()
}

// sendStatus answers with a Status.
func (rs *requestState) sendStatus(code int, media wire.Media, status object.Value) error {
	return rs.sendValue(code, media, nil, status)
}

// sendValue answers with a Status, or with an object of this type that is not stored.
func (rs *requestState) sendValue(code int, media wire.Media, typ wire.Type, v object.Value) error {
	rs.recordValue(v)
	switch {
	case media.Encoding != wire.Protobuf:
		return rs.send(code, media, append(object.AppendObject(nil, v), '\n'))
	case v.At("kind").Str() == "Status":
		typ = wire.Status()
	}
	b, err := proto.AppendObject(nil, typ, object.AppendObject(nil, v))
	if err != nil {
		return err
	}
	return rs.send(code, media, b)
}

func notTheForm(message string) error {
	return &apierr.Error{Code: http.StatusNotAcceptable, Reason: apierr.NotAcceptable, Message: message}
}

// send writes a whole answer, given as JSON, or in its final form if it is binary. A long one is compressed if the
// client accepts that, and has no Content-Length then.
//
// When a client reads nothing, or gives an HTTP/2 stream no window, every write beyond the buffer of net/http waits,
// and the request keeps its slot meanwhile. Without a guard, a client with a few hundred such streams could hold all
// slots forever. A shorter answer needs no guard: net/http sends its buffer after the handler has returned and the slot
// is free.
func (rs *requestState) send(code int, media wire.Media, text []byte) error {
	return rs.sendParts(code, media, &wire.Parts{Buf: text}, 0)
}

// sendParts is send for a text in parts, which is in one piece if it has to be converted. made is how many bytes the
// request holds besides the text meanwhile.
func (rs *requestState) sendParts(code int, media wire.Media, p *wire.Parts, made int) error {
	private := made + p.Private()
	if media.Encoding == wire.CBOR || media.Encoding == wire.YAML || media.Pretty {
		text, err := encoded(media, p.Buf)
		if err != nil {
			return err
		}
		p = &wire.Parts{Buf: text}
		private += p.Private()
	}
	header := rs.w.Header()
	header["Content-Type"] = contentTypes[media.Encoding]
	n := p.Len()
	compressed := n > compressFrom && rs.compresses()
	if compressed {
		private += compressorBytes
	}
	if n > buffered {
		defer rs.guard().arm(private).end()
	}
	var out io.Writer = rs
	var gz *compressor
	if compressed {
		gz = rs.compressor()
		defer releaseCompressor(gz)
		out = gz
	} else {
		header["Content-Length"] = []string{strconv.Itoa(n)}
	}
	rs.WriteHeader(code)
	for b := p.Next(); len(b) > 0; b = p.Next() {
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	if gz != nil {
		return gz.Close()
	}
	return nil
}

// write writes a text in parts. sendParts has the same loop: a request is served by few frames.
func write(w io.Writer, p *wire.Parts) error {
	for b := p.Next(); len(b) > 0; b = p.Next() {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// encoded converts JSON to the encoding of a media type, and returns binary text unchanged.
func encoded(media wire.Media, text []byte) ([]byte, error) {
	switch {
	case media.Encoding == wire.CBOR:
		return object.CBOR(text), nil
	case media.Encoding == wire.YAML:
		return object.YAML(text)
	case media.Pretty && media.Encoding == wire.JSON:
		var indented bytes.Buffer
		text = bytes.TrimSuffix(text, []byte("\n")) // as in the reference, where only compact JSON ends with a newline
		err := json.Indent(&indented, text, "", "  ")
		return indented.Bytes(), err
	}
	return text, nil
}

// compresses says whether the answer may be compressed: the client accepts that, and the operator has not turned it
// off.
func (rs *requestState) compresses() bool {
	return rs.h.Features.On(features.APIResponseCompression) && acceptsGzip(rs.r.Header.Get("Accept-Encoding"))
}

// acceptsGzip says whether an Accept-Encoding header contains gzip. As in the reference, weights are ignored.
func acceptsGzip(header string) bool {
	for token := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

// compressorBytes is about how much memory a compressor takes (TestCompressorBytes).
const compressorBytes = 800 << 10

// compressor compresses an answer. It collects what gzip writes: that comes in pieces of some hundred bytes, and for
// each piece that is written the request may have to wait for its place.
type compressor struct {
	gzip *gzip.Writer
	out  *bufio.Writer
}

func (c *compressor) reset(w io.Writer) {
	c.out.Reset(w)
	c.gzip.Reset(c.out)
}

// Write compresses b.
func (c *compressor) Write(b []byte) (int, error) { return c.gzip.Write(b) }

// compressedPiece is how many compressed bytes are written at once.
const compressedPiece = 16 << 10

var compressors = sync.Pool{New: func() any {
	gz, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("httpapi: " + err.Error()) // the level is a valid one
	}
	return &compressor{gz, bufio.NewWriterSize(nil, compressedPiece)}
}}

// Flush writes all that was given to it.
func (c *compressor) Flush() error {
	return cmp.Or(c.gzip.Flush(), c.out.Flush())
}

// Close ends the gzip member.
func (c *compressor) Close() error {
	return cmp.Or(c.gzip.Close(), c.out.Flush())
}

// compressor starts a compressed answer.
func (rs *requestState) compressor() *compressor {
	compressedHeader(rs.w.Header())
	return newCompressor(rs)
}

func compressedHeader(header http.Header) {
	header["Content-Encoding"] = []string{"gzip"}
	if header["Vary"] == nil { // otherwise it contains Accept-Encoding already, see validated
		header["Vary"] = []string{"Accept-Encoding"}
	}
}

func newCompressor(w io.Writer) *compressor {
	c := compressors.Get().(*compressor)
	c.reset(w)
	return c
}

func releaseCompressor(c *compressor) {
	c.reset(nil)
	compressors.Put(c)
}
