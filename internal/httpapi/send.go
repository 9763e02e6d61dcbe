package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/proto"
	"plinth/internal/wire"
	"plinth/object"
)

// compressFrom is the size from which on an answer is compressed for clients that want it (MED-5).
const compressFrom = 128 << 10

// contentTypes are the values of the Content-Type header, made once.
// streamTypes are those of a watch.
var contentTypes, streamTypes = func() (plain, streams [][]string) {
	for _, e := range wire.Encodings() {
		plain, streams = append(plain, []string{e.String()}), append(streams, []string{e.StreamType()})
	}
	return plain, streams
}()

// negotiate finds out how the client wants the result of a verb.
func (x *exchange) negotiate() (wire.Media, error) {
	accept := x.r.Header.Get("Accept")
	available := x.h.offer.MediaTypes()
	if x.target.verb == "list" || x.target.verb == "watch" {
		available = x.h.offer.CollectionTypes()
	}
	offer := x.offer()
	offer.NoTables = !x.resource.Tables(x.subresource)
	media, ok := offer.Negotiate(accept)
	literal := wire.Literal(accept, available...)
	switch {
	case ok && literal:
		media.Pretty = media.Encoding < wire.Protobuf && (media.Pretty || x.pretty())
		return media, nil
	case !literal:
		x.unwarn() // the reference does not get as far as to the type
		return media, wire.NotLiteral(available...)
	}
	return media, apierr.NewNotAcceptable(x.h.offer.MediaTypes())
}

// offer is what can be written and read of what is asked for.
func (x *exchange) offer() wire.Offer {
	offer := x.h.offer
	kind := x.resource.Stored
	offer.NoMessages = kind != nil && kind.Custom && (x.subresource == nil || x.subresource.Kind == x.resource.Kind)
	return offer
}

// pretty says whether a person is going to read the answer (MED-9).
func (x *exchange) pretty() bool {
	if strings.Contains(x.r.URL.RawQuery, "pretty") {
		if text := first(x.query(), "pretty"); text != "" {
			pretty, err := strconv.ParseBool(text)
			return pretty && err == nil
		}
	}
	agent := x.r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// table is the table that a media type asks for, or nil.
func (x *exchange) table(media wire.Media, rq *engine.Request) (*wire.Table, error) {
	if media.Form != wire.AsTable {
		return nil, nil
	}
	text := first(x.query(), "includeObject")
	include, ok := wire.ParseInclude(text)
	if !ok {
		return nil, apierr.NewBadRequest("Unable to convert to Table as requested: includeObject: Invalid value: " +
			strconv.Quote(text) + ": must be 'Metadata', 'Object', 'None', or empty")
	}
	t := wire.NewTable(rq, media.Version, include)
	t.Lean = media.Lean
	return t, nil
}

// buffers keeps those that answers were printed into. Large ones are kept apart, so that a small answer does not sit in
// one.
var smallBuffers, largeBuffers = sync.Pool{New: newBuffer(smallBuffer)}, sync.Pool{New: newBuffer(largeBuffer)}

const (
	smallBuffer = 8 << 10
	largeBuffer = compressFrom + 32<<10
	maxBuffer   = 1 << 20 // larger ones are left to the garbage collector
)

func newBuffer(size int) func() any {
	return func() any {
		b := make([]byte, 0, size)
		return &b
	}
}

// buffer is an empty buffer for an answer of about this size; release gives it back.
func buffer(size int) (b *[]byte, release func(*[]byte)) {
	if size <= smallBuffer {
		return smallBuffers.Get().(*[]byte), releaseSmall
	}
	return largeBuffers.Get().(*[]byte), releaseLarge
}

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
func (x *exchange) reply(media wire.Media, rq *engine.Request, result *engine.Result) error {
	if result.Created {
		return x.replyWith(http.StatusCreated, media, rq, result)
	}
	return x.replyWith(http.StatusOK, media, rq, result)
}

func (x *exchange) replyWith(code int, media wire.Media, rq *engine.Request, result *engine.Result) error {
	if result.Object == nil {
		return x.sendValue(code, media, x.answers(rq), result.Status)
	}
	table, err := x.table(media, rq)
	if err != nil {
		return err
	}
	if media.Form == wire.AsPartials {
		return notTheForm("you requested PartialObjectMetadataList, but the requested object is not a list (" + x.resource.Kind + ")")
	}
	if err := x.recordObject(media, rq, result.Object); err != nil {
		return err
	}
	b, release := buffer(wire.Size(result.Object) + 1)
	defer release(b)
	switch {
	case media.Encoding == wire.Protobuf && media.Form == wire.AsPartial:
		*b, err = wire.AppendProtobufPartial(*b, result.Object, media.Version, media.Lean)
	case media.Encoding == wire.Protobuf:
		*b, err = wire.AppendProtobuf(*b, x.answers(rq), result.Object, media.Lean)
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
	x.validated(x.validator(media, result))
	return x.send(code, media, *b)
}

// answers is the type of the object that a request is answered with.
func (x *exchange) answers(rq *engine.Request) wire.Type {
	if sub := rq.Subresource; sub != nil && (sub.View != nil || sub.Answer != nil) {
		return sub.Schema()
	}
	return rq.Resource.Schema()
}

// sendStatus answers with a Status.
func (x *exchange) sendStatus(code int, media wire.Media, status object.Value) error {
	return x.sendValue(code, media, nil, status)
}

// sendValue answers with a Status, or with an object of this type that is stored nowhere.
func (x *exchange) sendValue(code int, media wire.Media, typ wire.Type, v object.Value) error {
	x.recordValue(v)
	switch {
	case media.Encoding != wire.Protobuf:
		return x.send(code, media, append(object.AppendObject(nil, v), '\n'))
	case v.At("kind").Str() == "Status":
		typ = wire.Status()
	}
	b, err := proto.AppendObject(nil, typ, object.AppendObject(nil, v))
	if err != nil {
		return err
	}
	return x.send(code, media, b)
}

func notTheForm(message string) error {
	return &apierr.Error{Code: http.StatusNotAcceptable, Reason: apierr.NotAcceptable, Message: message}
}

// send writes a whole answer, given as JSON, or as it is where it is not text.
func (x *exchange) send(code int, media wire.Media, text []byte) error {
	text, err := encoded(media, text)
	if err != nil {
		return err
	}
	header := x.w.Header()
	header["Content-Type"] = contentTypes[media.Encoding]
	if len(text) > compressFrom {
		defer x.guard().arm().end()
		if x.compresses() {
			gz := x.compressor()
			defer releaseCompressor(gz)
			x.WriteHeader(code)
			if _, err := gz.Write(text); err != nil {
				return err
			}
			return gz.Close()
		}
	}
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	x.WriteHeader(code)
	_, err = x.Write(text)
	return err
}

// encoded is JSON as a media type has it; what is no text is given as it is.
func encoded(media wire.Media, text []byte) ([]byte, error) {
	switch {
	case media.Encoding == wire.CBOR:
		return object.CBOR(text), nil
	case media.Encoding == wire.YAML:
		return object.YAML(text)
	case media.Pretty && media.Encoding == wire.JSON:
		var indented bytes.Buffer
		text = bytes.TrimSuffix(text, []byte("\n")) // as the reference has it: a line ends where there is one line
		err := json.Indent(&indented, text, "", "  ")
		return indented.Bytes(), err
	}
	return text, nil
}

// compresses says whether the answer may be compressed: the client reads that, and the operator has not turned it off.
func (x *exchange) compresses() bool {
	return !x.h.NoCompression && acceptsGzip(x.r.Header.Get("Accept-Encoding"))
}

func acceptsGzip(header string) bool {
	for token := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

var compressors = sync.Pool{New: func() any {
	gz, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic("httpapi: " + err.Error()) // the level is a valid one
	}
	return gz
}}

// compressor begins a compressed answer.
func (x *exchange) compressor() *gzip.Writer {
	compressedHeader(x.w.Header())
	return newCompressor(x)
}

func compressedHeader(header http.Header) {
	header["Content-Encoding"] = []string{"gzip"}
	if header["Vary"] == nil { // else it tells of it already, see validated
		header["Vary"] = []string{"Accept-Encoding"}
	}
}

func newCompressor(w io.Writer) *gzip.Writer {
	gz := compressors.Get().(*gzip.Writer)
	gz.Reset(w)
	return gz
}

func releaseCompressor(gz *gzip.Writer) {
	gz.Reset(nil)
	compressors.Put(gz)
}
