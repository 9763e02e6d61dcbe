package wire

import (
	"fmt"

	"plinth/internal/engine"
	"plinth/object"
)

// Size is the approximate length of a printed object.
func Size(o *engine.Object) int { return o.Len() + len(`"resourceVersion":"9223372036854775807",`) }

// AppendObject prints an object, without managedFields if lean is set.
func AppendObject(dst []byte, o *engine.Object, lean bool) []byte {
	return appendPart(dst, o, 0, o.Len(), lean)
}

// AppendItem prints an object as an item of its kind's list: without its type (MED-8).
func AppendItem(dst []byte, o *engine.Object, lean bool) []byte {
	return appendPart(append(dst, '{'), o, engine.LayoutOf(o).Item, o.Len(), lean)
}

// AppendPartial prints the metadata of an object alone (MED-7).
func AppendPartial(dst []byte, o *engine.Object, version string, lean bool) []byte {
	return appendPartial(dst, o, version, endOfMetadata(o, dst[len(dst):]), lean)
}

// appendPartial is AppendPartial for callers that know where the metadata ends.
func appendPartial(dst []byte, o *engine.Object, version string, end int, lean bool) []byte {
	dst = appendType(dst, "PartialObjectMetadata", version)
	dst = append(dst, `,"metadata":`...)
	dst = appendPart(dst, o, engine.LayoutOf(o).Item+len(metadataKey), end, lean)
	return append(dst, '}')
}

// appendPart prints the bytes of an object from one offset to another, with its resourceVersion, and if lean without
// its managedFields (MED-10). Both cost the same, as both are copies.
func appendPart(dst []byte, o *engine.Object, from, to int, lean bool) []byte {
	at := engine.LayoutOf(o)
	if lean && at.ManagedEnd > 0 {
		dst = o.Append(dst, from, at.Managed)
		from = at.ManagedEnd
	}
	if o.Revision == 0 { // of a dry run: it has no revision
		return o.Append(dst, from, to)
	}
	dst = object.AppendVersioned(o.Append(dst, from, at.Splice), nil, 0, o.Revision)
	return o.Append(dst, at.Splice, to)
}

// appendType begins an object of the group meta.k8s.io.
func appendType(dst []byte, kind, version string) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","apiVersion":"`+metaGroup+`/`...)
	dst = append(dst, version...)
	return append(dst, '"')
}

// metadataKey follows the type in a canonical object.
const metadataKey = `"metadata":`

// endOfMetadata is the offset after the metadata of an object. buffer is empty, and may be written to.
//
// The search begins where resourceVersion is inserted, between two keys of the metadata: usually only the UID follows,
// in less than 64 bytes.
func endOfMetadata(o *engine.Object, buffer []byte) int {
	from := engine.LayoutOf(o).Splice
	for n := 64; ; n *= 8 {
		to := min(from+n, o.Len())
		if end := endOfMap(o.Append(buffer, from, to), 0); end >= 0 {
			return from + end
		}
		if to == o.Len() {
			panic(fmt.Sprintf("wire: %s is not canonical: its metadata has no end", o.Key))
		}
	}
}

// endOfMap is the offset after a JSON object, for a position in front of one of its keys, or -1.
func endOfMap(data []byte, pos int) int {
	depth := 1
	for ; pos < len(data); pos++ {
		switch data[pos] {
		case '"':
			for pos++; pos < len(data) && data[pos] != '"'; pos++ {
				if data[pos] == '\\' {
					pos++
				}
			}
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return pos + 1
			}
		}
	}
	return -1
}
