package wire

import (
	"strconv"
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

// The slots of a record's memo in which encoded events are kept for the other watchers. Plain JSON has none: printing it
// is a copy, as reading it from a memo would be.
const (
	slotPartial = iota
	slotPartialBeta
)

// Frames prints the events of one watch as JSON, one a line (WATCH-1). It is not for use by two goroutines at a time.
type Frames struct {
	resource *engine.Resource
	media    Media
	table    *Table
	headed   bool // the table has shown its columns
}

// NewFrames makes the printer of one watch. The table is needed where the media type is one.
func NewFrames(r *engine.Resource, m Media, t *Table) *Frames {
	return &Frames{resource: r, media: m, table: t}
}

var frameHeads = [...]string{
	engine.Added:    `{"type":"ADDED","object":`,
	engine.Modified: `{"type":"MODIFIED","object":`,
	engine.Deleted:  `{"type":"DELETED","object":`,
	engine.Bookmark: `{"type":"BOOKMARK","object":`,
}

const (
	errorHead = `{"type":"ERROR","object":`
	frameTail = "}\n"
	frameSize = len(`{"type":"BOOKMARK","object":`) + len(frameTail)
)

// Size is about how long the frame of an event is.
func (f *Frames) Size(e *engine.Event) int {
	if e.Object == nil {
		return frameSize
	}
	return frameSize + Size(e.Object)
}

// Append prints an event. The object of a DELETED event shows the revision of the deletion.
func (f *Frames) Append(dst []byte, e *engine.Event) ([]byte, error) {
	if e.Type == engine.Bookmark {
		return f.AppendBookmark(dst, e.Revision, e.InitialEnd), nil
	}
	o := e.Object
	if e.Type == engine.Deleted && o.Revision != e.Revision {
		last := *o
		last.Revision = e.Revision
		o = &last
	}
	dst = append(dst, frameHeads[e.Type]...)
	switch f.media.Form {
	case AsTable:
		var err error
		if dst, err = f.appendTable(dst, o); err != nil {
			return dst, err
		}
	case AsPartial:
		dst = f.appendPartial(dst, o, e)
	default:
		dst = AppendObject(dst, o)
	}
	return append(dst, frameTail...), nil
}

// appendPartial prints metadata, once for all watchers where they share the record. Whatever the type of the event is for
// each of them, the object of one record is the same one.
func (f *Frames) appendPartial(dst []byte, o *engine.Object, e *engine.Event) []byte {
	if e.Record == nil {
		return AppendPartial(dst, o, f.media.Version)
	}
	slot := slotPartial
	if f.media.Version != "v1" {
		slot = slotPartialBeta
	}
	if known := e.Record.Memo.Load(slot); known != nil {
		return append(dst, known...)
	}
	printed := AppendPartial(nil, o, f.media.Version)
	e.Record.Memo.Store(slot, printed)
	return append(dst, printed...)
}

func (f *Frames) appendTable(dst []byte, o *engine.Object) ([]byte, error) {
	f.table.now = time.Now()
	dst = f.table.head(dst, &ListMeta{Revision: o.Revision}, !f.headed)
	f.headed = true
	dst, err := f.table.row(dst, o)
	return append(dst, "]}"...), err
}

// initialEventsEnd is the annotation of the bookmark that ends the initial events (WATCH-5).
const initialEventsEnd = "k8s.io/initial-events-end"

// AppendBookmark prints a bookmark: the kind's zero value with a resourceVersion (WATCH-4).
func (f *Frames) AppendBookmark(dst []byte, revision int64, initialEnd bool) []byte {
	metadata := object.Fields("resourceVersion", object.StringOf(strconv.FormatInt(revision, 10)))
	if initialEnd {
		metadata = metadata.With("annotations", object.Fields(initialEventsEnd, object.StringOf("true")))
	}
	dst = append(dst, frameHeads[engine.Bookmark]...)
	empty := f.resource.Empty().With("metadata", metadata)
	switch f.media.Form {
	case AsTable:
		dst = f.table.head(dst, &ListMeta{Revision: revision}, !f.headed)
		f.headed = true
		dst = f.table.appendCells(dst, empty)
		switch {
		case f.table.include == IncludeObject:
			dst = object.AppendObject(dst, empty)
		case f.table.include == IncludeMetadata, initialEnd:
			dst = f.emptyPartial(dst, metadata)
		default:
			dst = append(dst, "null"...)
		}
		dst = append(dst, "}]}"...)
	case AsPartial:
		dst = f.emptyPartial(dst, metadata)
	default:
		dst = object.AppendObject(dst, empty)
	}
	return append(dst, frameTail...)
}

func (f *Frames) emptyPartial(dst []byte, metadata object.Value) []byte {
	dst = appendType(dst, "PartialObjectMetadata", f.media.Version)
	dst = append(dst, `,"metadata":`...)
	return append(object.AppendJSON(dst, metadata), '}')
}

// AppendError prints an ERROR event about a Status.
func AppendError(dst []byte, status object.Value) []byte {
	dst = append(dst, errorHead...)
	dst = object.AppendObject(dst, status)
	return append(dst, frameTail...)
}
