package etcdform

import (
	"bytes"
	"errors"

	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Encode returns the value of a stored object: the bytes that the reference would write for it, with the exceptions
// that the package lists.
func (f *Form) Encode(k store.Key, data []byte) (value []byte, err error) {
	// Neither is ever stored in etcd. Objects that the reference stored have no selfLink, so that a search for its name
	// costs less than a look at every member of the metadata.
	if bytes.Contains(data, []byte(`"selfLink":`)) {
		parsed, err := object.ParseJSON(bytes.Clone(data))
		if err != nil {
			return nil, err
		}
		data = object.AppendObject(nil, parsed.Value.WithoutAt("metadata", "selfLink"))
	}
	p := f.byPath[k.Resource]
	switch {
	case p == nil:
		return appendSorted(make([]byte, 0, len(data)+1), data)
	case p.values == protobuf:
		version := p.stored.Version(proto.EnvelopeOf(data).APIVersion)
		if version == nil {
			return nil, p.unknown(proto.EnvelopeOf(data).APIVersion)
		}
		return proto.AppendStored(nil, version.Schema(), data, merge.AppendFieldsText)
	}
	parsed, err := object.ParseJSON(bytes.Clone(data))
	if err != nil {
		return nil, err
	}
	obj, typ := parsed.Value, p.schemaOf(parsed.Value.At("apiVersion").Str())
	if p.values == definition {
		if obj, err = toV1beta1(obj); err != nil {
			return nil, err
		}
		typ = definitionType()
	}
	if typ == nil {
		return nil, p.unknown(obj.At("apiVersion").Str())
	}
	return append(appendGo(make([]byte, 0, len(data)+len(data)/8), obj, typ), '\n'), nil
}

// schemaOf is the type of a version of the kind; nil if it has no such version.
func (p *kindForm) schemaOf(apiVersion string) *schema.Type {
	if p.stored == nil {
		if apiVersion == apiServiceVersion {
			return apiServiceType()
		}
		return nil
	}
	if version := p.stored.Version(apiVersion); version != nil {
		return version.Schema()
	}
	return nil
}

// errNotCanonical says that bytes were not printed by package object.
var errNotCanonical = errors.New("the object is not canonical JSON")

// appendSorted appends canonical JSON with all its members in the order of their names, and a newline. Only at the top
// level is the order of canonical JSON another one: apiVersion, kind and metadata are first there.
func appendSorted(dst, data []byte) ([]byte, error) {
	var leading, others [][]byte // members with their keys
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return nil, errNotCanonical
	}
	for pos := 1; data[pos] == '"'; pos++ {
		colon := object.Skip(data, pos)
		end := object.Skip(data, min(colon+1, len(data)))
		if end >= len(data) || end == len(data)-1 && data[end] != '}' || end < len(data)-1 && data[end] != ',' {
			return nil, errNotCanonical
		}
		member := data[pos:end]
		switch key := string(data[pos+1 : colon-1]); key {
		case "apiVersion", "kind", "metadata":
			leading = append(leading, member)
		default:
			others = append(others, member)
		}
		if pos = end; data[pos] == '}' {
			break
		}
	}
	dst = append(dst, '{')
	for len(leading)+len(others) > 0 {
		next := &leading
		if len(leading) == 0 || len(others) > 0 && keyLess(others[0], leading[0]) {
			next = &others
		}
		dst = append(append(dst, (*next)[0]...), ',')
		*next = (*next)[1:]
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}', '\n'), nil
}

// keyLess compares the keys of two members of canonical JSON, of which b's has no escapes.
func keyLess(a, b []byte) bool {
	key := object.AppendUnescaped(nil, a[1:object.Skip(a, 0)-1])
	return bytes.Compare(key, b[1:object.Skip(b, 0)-1]) < 0
}
