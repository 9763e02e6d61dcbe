package etcdform

import (
	"bytes"
	"unsafe"

	"plinth/internal/invariants"
	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// Nearly all values in etcd are as the reference writes them: protobuf in the storage version, with all defaults set. A
// server reads all of them when it starts. So they are read in one pass (proto.Read), in a tenth of the time that
// place.decode takes: sets of managedFields are not parsed, the result is not decoded and settled, and it is not
// encoded to find out whether the value is exact. In tests the result is compared with that of place.decode
// (checkUsual).

// decodeUsual is Decode for such a value. data is nil for all others. exact says that the value is known to be exact.
func (f *Form) decodeUsual(p *kindForm, k store.Key, value []byte) (data []byte, sidecar *store.Sidecar, exact bool) {
	envelope, raw, err := proto.ReadEnvelope(value)
	if version := p.stored.Storage; err != nil || envelope.APIVersion != version.APIVersion || envelope.Kind != p.kind {
		return nil, nil, false
	}
	proto.Read(p.stored.Storage.Schema(), envelope, raw, usualFields, func(obj object.Value, known bool) {
		metadata := obj.At("metadata")
		if !metadata.At("selfLink").IsNull() || !metadata.At("resourceVersion").IsNull() ||
			checkIdentity(k, metadata) != nil {
			return
		}
		if set := p.stored.Storage.Default; set != nil {
			if defaulted := set(obj); defaulted != obj && !object.Equal(defaulted, obj) {
				return
			}
		}
		data, sidecar = f.printed(k, obj, stampOf(p.stored))
		exact = known && isEnvelope(envelope, raw, value)
	})
	return data, sidecar, exact
}

// usualFields is the value of a set of managedFields. A set that can be copied is carried as a Number, which is printed
// as it is; nothing looks at it before that.
func usualFields(text []byte) (v object.Value, exact bool) {
	if merge.IsFieldsText(text) {
		return object.NumberOf(unsafe.String(unsafe.SliceData(text), len(text))), true
	}
	if canonical, ok := merge.CanonicalFieldsText(make([]byte, 0, len(text)), text); ok {
		buffer := scratch.Get().(*[]byte)
		*buffer = merge.AppendFieldsText((*buffer)[:0], canonical)
		exact = bytes.Equal(*buffer, text)
		scratch.Put(buffer)
		return object.NumberOf(unsafe.String(unsafe.SliceData(canonical), len(canonical))), exact
	}
	parsed, err := object.ParseJSON(bytes.Clone(text))
	if err != nil {
		return object.Nil, false
	}
	return parsed.Value, false
}

// isEnvelope says whether a value is what Envelope.Append returns for its message.
func isEnvelope(envelope proto.Envelope, raw, value []byte) bool {
	var head [128]byte
	return len(value) == envelope.Size(len(raw)) && bytes.HasPrefix(value, envelope.AppendHead(head[:0], len(raw))) &&
		bytes.HasSuffix(value, []byte(proto.EnvelopeTail))
}

// checkUsual panics unless the slow way gives the same.
func (f *Form) checkUsual(k store.Key, value, data []byte, exact bool) {
	slow, _, err := f.byPath[k.Resource].decode(value)
	if err != nil {
		invariants.Fail("etcdform: %s is read as %s, and an error: %v", k, data, err)
	}
	if want := object.AppendObject(nil, slow); !bytes.Equal(want, data) {
		invariants.Fail("etcdform: %s is read as %s, and as %s", k, data, want)
	}
	if exact && !f.isExact(k, data, value) {
		invariants.Fail("etcdform: %s is not exact: %s", k, data)
	}
}
