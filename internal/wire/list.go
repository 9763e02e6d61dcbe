package wire

import (
	"iter"
	"strconv"

	"plinth/internal/engine"
	"plinth/internal/proto"
	"plinth/object"
)

// ListMeta is the metadata at the head of a collection.
type ListMeta struct {
	Revision  int64  // 0: none
	Continue  string // the token for the next page; "": there is none
	Remaining *int64
	Shard     string // the shard selector of a list that is a part of the collection, or ""
	// Custom says that the list is of custom objects. As in the reference, its metadata then has continue even if it is
	// empty.
	Custom bool
}

// append prints it as the value of a metadata member.
func (m *ListMeta) append(dst []byte) []byte {
	dst = append(dst, '{')
	if m.Revision != 0 {
		dst = append(dst, `"resourceVersion":"`...)
		dst = strconv.AppendInt(dst, m.Revision, 10)
		dst = append(dst, '"')
	}
	if m.Continue != "" || m.Custom {
		dst = append(dst, `,"continue":`...)
		dst = object.AppendString(dst, m.Continue)
	}
	if m.Remaining != nil {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, *m.Remaining, 10)
	}
	if m.Shard != "" {
		dst = append(dst, `,"shardInfo":{"selector":`...)
		dst = append(object.AppendString(dst, m.Shard), '}')
	}
	return append(dst, '}')
}

// List prints a collection: Head, then for every object Item, then Tail. The envelope of a protobuf list begins with
// the length of the whole list, so the list is measured first (Measure).
type List struct {
	Cache *EncodedCache // where messages are kept for the next list; nil: they are not kept

	media Media
	typed bool   // each item has apiVersion and kind, as custom objects do
	kind  string // of the list
	group string // group/version of the list
	table *Table
	items int
	typ   Type // of the items, where they are written as messages
	size  int  // of the items in protobuf

	scratch []byte // the last message without its managedFields
}

// NewList makes the printer of a list of a resource type. The table is needed if the media type is a Table.
func NewList(r *engine.Resource, m Media, t *Table) *List {
	l := &List{media: m, kind: r.ListKind, group: r.APIVersion(), table: t}
	if m.Form == AsPartials {
		l.kind, l.group = "PartialObjectMetadataList", metaGroup+"/"+m.Version
	}
	if l.typed = r.Stored != nil && r.Stored.Custom && m.Form == Plain; m.Encoding == Protobuf && !l.typed &&
		m.Form == Plain {
		l.typ = r.Schema()
	}
	return l
}

// Measure goes through all items before the first is written, if the encoding needs the length of the list first.
func (l *List) Measure(items iter.Seq[*engine.Object]) error {
	if l.media.Encoding != Protobuf {
		return nil
	}
	for o := range items {
		message, err := l.message(o)
		if err != nil {
			return err
		}
		l.size += proto.FieldSize(len(message))
	}
	return nil
}

// message is the message of an item. Messages are not held in memory between measuring and writing: they are looked up
// in the cache again, or made again if the cache had no room for them.
func (l *List) message(o *engine.Object) ([]byte, error) {
	var message []byte
	var err error
	if l.media.Form == AsPartials {
		message, err = partialMessage(o)
	} else {
		message, err = l.Cache.message(l.typ, o)
	}
	if err == nil && l.media.Lean {
		l.scratch = proto.AppendLean(l.scratch[:0], message)
		message = l.scratch
	}
	return message, err
}

// Head prints the part before the items.
func (l *List) Head(dst []byte, m ListMeta) []byte {
	switch {
	case l.table != nil:
		return l.table.head(dst, &m, true)
	case l.media.Encoding == Protobuf:
		head := m.message()
		dst = proto.Envelope{APIVersion: l.group, Kind: l.kind}.AppendHead(dst, proto.FieldSize(len(head))+l.size)
		return append(proto.AppendLength(dst, 1, len(head)), head...)
	}
	dst = append(dst, `{"kind":`...)
	dst = object.AppendString(dst, l.kind)
	dst = append(dst, `,"apiVersion":`...)
	dst = object.AppendString(dst, l.group)
	dst = append(dst, `,"metadata":`...)
	m.Custom = l.typed
	dst = m.append(dst)
	return append(dst, `,"items":[`...)
}

// Item prints one object, comma included.
func (l *List) Item(dst []byte, o *engine.Object) ([]byte, error) {
	if l.media.Encoding == Protobuf {
		message, err := l.message(o)
		return append(proto.AppendLength(dst, 2, len(message)), message...), err
	}
	if l.items++; l.items > 1 {
		dst = append(dst, ',')
	}
	switch l.media.Form {
	case AsTable:
		return l.table.row(dst, o, l.Cache)
	case AsPartials:
		return AppendPartial(dst, o, l.media.Version, l.media.Lean), nil
	}
	if l.typed {
		return AppendObject(dst, o, l.media.Lean), nil
	}
	return AppendItem(dst, o, l.media.Lean), nil
}

// ItemParts is Item for a long object in parts.
func (l *List) ItemParts(p *Parts, o *engine.Object) (err error) {
	// A lean message is in the scratch buffer, which the next item changes.
	if l.media.Form != Plain || l.media.Encoding == CBOR || l.media.Encoding == Protobuf && l.media.Lean || !Long(o) {
		p.Buf, err = l.Item(p.Buf, o)
		return err
	}
	if l.media.Encoding == Protobuf {
		message, err := l.message(o)
		p.Buf = proto.AppendLength(p.Buf, 2, len(message))
		p.add(message, l.Cache != nil)
		return err
	}
	if l.items++; l.items > 1 {
		p.Buf = append(p.Buf, ',')
	}
	if l.typed {
		p.Object(o, l.media.Lean)
		return nil
	}
	p.Buf = append(p.Buf, '{')
	p.part(o, engine.LayoutOf(o).Item, l.media.Lean)
	return nil
}

// Tail prints the part after the items.
func (l *List) Tail(dst []byte) []byte {
	if l.media.Encoding == Protobuf {
		return append(dst, proto.EnvelopeTail...)
	}
	if l.items == 0 && l.table != nil && l.table.common {
		return append(dst[:len(dst)-1], "null}\n"...) // as in the reference, which writes [] for every other type
	}
	return append(dst, "]}\n"...)
}
