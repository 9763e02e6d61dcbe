package wire

import (
	"fmt"

	"plinth/internal/engine"
	"plinth/object"
)

// Size is about how long an object is when printed.
func Size(o *engine.Object) int { return len(o.Data) + len(`"resourceVersion":"9223372036854775807",`) }

// AppendObject prints an object as it is.
func AppendObject(dst []byte, o *engine.Object) []byte {
	if o.Revision == 0 { // of a dry run: it has no version
		return append(dst, o.Data...)
	}
	return object.AppendVersioned(dst, o.Data, o.Sidecar.Splice, o.Revision)
}

// AppendItem prints an object as the item of a list of its own kind: without its type (MED-8).
func AppendItem(dst []byte, o *engine.Object) []byte {
	dst = append(dst, '{')
	item := o.Sidecar.Item
	return object.AppendVersioned(dst, o.Data[item:], o.Sidecar.Splice-item, o.Revision)
}

// AppendPartial prints the metadata of an object alone (MED-7).
func AppendPartial(dst []byte, o *engine.Object, version string) []byte {
	return appendPartial(dst, o, version, endOfMetadata(o))
}

// appendPartial is AppendPartial for who knows where the metadata ends.
func appendPartial(dst []byte, o *engine.Object, version string, end int) []byte {
	dst = appendType(dst, "PartialObjectMetadata", version)
	dst = append(dst, `,"metadata":`...)
	start := o.Sidecar.Item + len(metadataKey)
	if o.Revision == 0 {
		dst = append(dst, o.Data[start:end]...)
	} else {
		dst = object.AppendVersioned(dst, o.Data[start:end], o.Sidecar.Splice-start, o.Revision)
	}
	return append(dst, '}')
}

// appendType begins an object of the group meta.k8s.io.
func appendType(dst []byte, kind, version string) []byte {
	dst = append(dst, `{"kind":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","apiVersion":"`+metaGroup+`/`...)
	dst = append(dst, version...)
	return append(dst, '"')
}

// metadataKey is what a canonical object goes on with behind its type.
const metadataKey = `"metadata":`

// endOfMetadata is the offset behind the metadata of an object.
func endOfMetadata(o *engine.Object) int {
	start := o.Sidecar.Item + len(metadataKey)
	end := endOfMap(o.Data, start)
	if end < 0 || string(o.Data[o.Sidecar.Item:start]) != metadataKey {
		panic(fmt.Sprintf("wire: %s is not canonical: its metadata is not in front", o.Key))
	}
	return end
}

// endOfMap is the offset behind the JSON object that starts at pos, or -1.
func endOfMap(data []byte, pos int) int {
	if pos >= len(data) || data[pos] != '{' {
		return -1
	}
	depth := 0
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
