package wire

import (
	"bytes"
	"strconv"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/object"
)

// The slots of a record's memo in which encoded events are kept for the other watchers. Plain JSON has no slot:
// printing it is a copy, as reading it from a memo would be.
const (
	memoPartial = iota
	memoPartialBeta
	memoMessage
	memoPartialMessage
)

// Events prints the events of one watch (WATCH-1): as JSON, one a line, as protobuf, each after its length, or as a
// sequence of CBOR items. It must not be used concurrently.
type Events struct {
	Cache *EncodedCache // where messages are kept for others; nil: they are not kept

	media  Media
	typ    Type         // of the objects, where they are written as messages
	empty  object.Value // the kind's zero value, for bookmarks in a table
	table  *Table
	headed bool // the table has shown its columns
	// bookmark is a bookmark without its metadata, which belongs at the offset metadata. It is printed once, at the
	// beginning of the watch, which takes less memory than the stack on which it would be printed each time, and one
	// text is kept for all watches of a kind.
	bookmark unique.Handle[string]
	metadata int
}

// NewEvents makes the printer of one watch. The table is needed if the media type is a Table.
func NewEvents(r *engine.Resource, m Media, t *Table) *Events {
	f := &Events{media: m, table: t}
	if m.Encoding == Protobuf {
		if f.typ = r.Schema(); m.Form == AsPartial {
			f.typ = gotypes.Of[metav1.PartialObjectMetadata]()
		}
	}
	switch m.Form {
	case AsTable:
		f.empty = r.Empty()
	case AsPartial:
		text := append(append(appendType(nil, "PartialObjectMetadata", m.Version), ','), metadataKey...)
		f.bookmark, f.metadata = unique.Make(string(text)+"}"), len(text)
	default:
		const none = metadataKey + "{}"
		printed := object.AppendObject(nil, r.Empty().With("metadata", object.MapOf()))
		before, after, _ := bytes.Cut(printed, []byte(none))
		text := string(before) + metadataKey
		f.bookmark, f.metadata = unique.Make(text+string(after)), len(text)
	}
	return f
}

var eventHeads = [...]string{
	engine.Added:    `{"type":"ADDED","object":`,
	engine.Modified: `{"type":"MODIFIED","object":`,
	engine.Deleted:  `{"type":"DELETED","object":`,
	engine.Bookmark: `{"type":"BOOKMARK","object":`,
}

const (
	errorHead = `{"type":"ERROR","object":`
	eventTail = "}\n"
	eventSize = len(`{"type":"BOOKMARK","object":`) + len(eventTail)
)

// Size is the approximate length of an event as it is printed.
func (f *Events) Size(e *engine.Event) int {
	if e.Object == nil {
		return eventSize
	}
	return eventSize + Size(e.Object)
}

// AppendParts is Append for a long event in parts.
func (f *Events) AppendParts(p *Parts, e *engine.Event) (err error) {
	if e.Type == engine.Bookmark || !Long(e.Object) || f.media.Form != Plain || f.media.Encoding == CBOR {
		p.Buf, err = f.Append(p.Buf, e)
		return err
	}
	o := objectIn(e)
	if f.media.Encoding == Protobuf {
		return f.addMessage(p, o, e)
	}
	p.Buf = append(p.Buf, eventHeads[e.Type]...)
	p.Object(o, f.media.Lean)
	p.Buf = append(p.Buf, eventTail...)
	return nil
}

// objectIn is the object of an event as it is sent: that of a DELETED event shows the revision of the deletion.
func objectIn(e *engine.Event) *engine.Object {
	if shows := e.Shows(); e.Object.Revision != shows {
		return e.Object.At(shows)
	}
	return e.Object
}

// Append prints an event.
func (f *Events) Append(dst []byte, e *engine.Event) ([]byte, error) {
	if e.Type == engine.Bookmark {
		return f.AppendBookmark(dst, e.Revision, e.InitialEnd)
	}
	o := objectIn(e)
	if f.media.Encoding == Protobuf {
		return f.appendMessage(dst, o, e)
	}
	return f.encoded(dst, func(dst []byte) ([]byte, error) { return f.appendText(dst, o, e) })
}

// encoded converts an event from JSON to CBOR if the watch is sent in CBOR.
func (f *Events) encoded(dst []byte, appendText func(dst []byte) ([]byte, error)) ([]byte, error) {
	if f.media.Encoding != CBOR {
		return appendText(dst)
	}
	text, err := appendText(nil)
	return append(dst, object.CBOR(text)...), err
}

func (f *Events) appendText(dst []byte, o *engine.Object, e *engine.Event) ([]byte, error) {
	dst = append(dst, eventHeads[e.Type]...)
	switch f.media.Form {
	case AsTable:
		var err error
		if dst, err = f.appendTable(dst, o); err != nil {
			return dst, err
		}
	case AsPartial:
		dst = f.appendPartial(dst, o, e)
	default:
		dst = AppendObject(dst, o, f.media.Lean)
	}
	return append(dst, eventTail...), nil
}

// appendPartial prints metadata, once for all watchers that share the record. The type of the event may differ between
// them, but the object of a record is the same for all.
func (f *Events) appendPartial(dst []byte, o *engine.Object, e *engine.Event) []byte {
	if e.Record == nil || f.media.Lean {
		return AppendPartial(dst, o, f.media.Version, f.media.Lean)
	}
	slot := memoPartial
	if f.media.Version != "v1" {
		slot = memoPartialBeta
	}
	if known := e.Record.Memo.Load(slot); known != nil {
		return append(dst, known...)
	}
	printed := AppendPartial(nil, o, f.media.Version, false)
	e.Record.Memo.Store(slot, printed)
	return append(dst, printed...)
}

func (f *Events) appendTable(dst []byte, o *engine.Object) ([]byte, error) {
	f.table.now = time.Now()
	dst = f.table.head(dst, &ListMeta{Revision: o.Revision}, !f.headed)
	f.headed = true
	dst, err := f.table.row(dst, o, f.Cache)
	return append(dst, "]}"...), err
}

// initialEventsEnd is the annotation of the bookmark that ends the initial events (WATCH-5).
const initialEventsEnd = "k8s.io/initial-events-end"

// AppendBookmark prints a bookmark: the kind's zero value with a resourceVersion (WATCH-4).
func (f *Events) AppendBookmark(dst []byte, revision int64, initialEnd bool) ([]byte, error) {
	if f.media.Encoding == Protobuf {
		return appendMessageEvent(dst, engine.Bookmark.String(), f.typ, f.appendBookmark(nil, revision, initialEnd))
	}
	return f.encoded(dst, func(dst []byte) ([]byte, error) {
		dst = append(dst, eventHeads[engine.Bookmark]...)
		if f.media.Form == AsTable {
			dst = f.appendTableBookmark(dst, revision, initialEnd)
			return append(dst, eventTail...), nil
		}
		return append(f.appendBookmark(dst, revision, initialEnd), eventTail...), nil
	})
}

// appendBookmark prints the object of a bookmark.
func (f *Events) appendBookmark(dst []byte, revision int64, initialEnd bool) []byte {
	text := f.bookmark.Value()
	dst = append(dst, text[:f.metadata]...)
	dst = appendBookmarkMetadata(dst, revision, initialEnd)
	return append(dst, text[f.metadata:]...)
}

func appendBookmarkMetadata(dst []byte, revision int64, initialEnd bool) []byte {
	dst = append(dst, '{')
	if initialEnd {
		dst = append(dst, `"annotations":{"`+initialEventsEnd+`":"true"},`...)
	}
	dst = append(dst, `"resourceVersion":"`...)
	dst = strconv.AppendInt(dst, revision, 10)
	return append(dst, `"}`...)
}

// appendTableBookmark prints a bookmark as a row. The row that ends the initial events always shows metadata, because
// the annotation that marks the end is part of it.
func (f *Events) appendTableBookmark(dst []byte, revision int64, initialEnd bool) []byte {
	dst = f.table.head(dst, &ListMeta{Revision: revision}, !f.headed)
	f.headed = true
	dst = f.table.appendCells(dst, appendText(nil, f.table.cells(f.empty)))
	switch {
	case f.table.include == IncludeObject:
		metadata := object.Fields("resourceVersion", object.StringOf(strconv.FormatInt(revision, 10)))
		if initialEnd {
			metadata = metadata.With("annotations", object.Fields(initialEventsEnd, object.StringOf("true")))
		}
		dst = object.AppendObject(dst, f.empty.With("metadata", metadata))
	case f.table.include == IncludeMetadata, initialEnd:
		dst = appendType(dst, "PartialObjectMetadata", f.media.Version)
		dst = append(dst, `,"metadata":`...)
		dst = appendBookmarkMetadata(dst, revision, initialEnd)
		dst = append(dst, '}')
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, "}]}"...)
}

// AppendError prints an ERROR event about a Status.
func (f *Events) AppendError(dst []byte, status object.Value) ([]byte, error) {
	if f.media.Encoding == Protobuf {
		return appendMessageEvent(dst, "ERROR", gotypes.Of[metav1.Status](), object.AppendObject(nil, status))
	}
	return f.encoded(dst, func(dst []byte) ([]byte, error) {
		dst = append(dst, errorHead...)
		dst = object.AppendObject(dst, status)
		return append(dst, eventTail...), nil
	})
}
