package etcdform

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"

	"plinth/internal/engine"
	"plinth/internal/invariants"
	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Decode returns the stored form of a value: the bytes that a write of the same object would store, with their sidecar.
// Its Form, the stamp that they have (engine.Kind.Stamp), is 0 if the object is in another version than that in which
// its kind is stored, or in the form of an earlier schema: then every read converts it. exact says that Encode returns
// the value again. An error means that the bytes are no object of the kind, or that of another key.
//
// data and value share no memory.
func (f *Form) Decode(k store.Key, value []byte) (data []byte, sidecar *store.Sidecar, exact bool, err error) {
	p := f.byPath[k.Resource]
	if p != nil && p.values == protobuf && proto.Enveloped(value) {
		if data, sidecar, exact := f.decodeUsual(p, k, value); data != nil {
			if invariants.Enabled {
				f.checkUsual(k, value, data, exact)
			}
			return data, sidecar, exact || f.isExact(k, data, value), nil
		}
	}
	var obj object.Value
	var form uint64
	switch {
	case p == nil:
		obj, form, err = f.decodeCustom(k, value)
	default:
		obj, form, err = p.decode(value)
	}
	if err != nil {
		return nil, nil, false, err
	}
	if err := checkIdentity(k, obj.At("metadata")); err != nil {
		return nil, nil, false, err
	}
	data, sidecar = f.printed(k, obj.WithoutAt("metadata", "resourceVersion"), form)
	return data, sidecar, f.isExact(k, data, value), nil
}

// scratch are buffers for printing objects whose size is not known yet.
var scratch = sync.Pool{New: func() any { buffer := make([]byte, 0, 8<<10); return &buffer }}

// maxScratch is the capacity from which on a buffer is not kept.
const maxScratch = 64 << 10

// printed is an object as canonical JSON, in a slice of its length: the store keeps it. It is described from the value,
// which saves a parse of what has just been printed.
func (f *Form) printed(k store.Key, obj object.Value, form uint64) (data []byte, sidecar *store.Sidecar) {
	buffer := scratch.Get().(*[]byte)
	text, at := object.AppendLocated((*buffer)[:0], obj)
	data = append(make([]byte, 0, len(text)), text...)
	if cap(text) <= maxScratch {
		*buffer = text
	}
	scratch.Put(buffer)
	sidecar = engine.DescribeValue(f.registry.Now().Kind(k.Resource), obj, data, at)
	sidecar.Form = form
	return data, sidecar
}

// isExact says whether Encode returns a value for the stored form that was read from it.
func (f *Form) isExact(k store.Key, data, value []byte) bool {
	back, err := f.Encode(k, data)
	return err == nil && bytes.Equal(back, value)
}

// checkIdentity says whether metadata is that of the object of a key. The reference would find an object under another
// name by its key in etcd, and by its metadata in its cache.
func checkIdentity(k store.Key, metadata object.Value) error {
	name := metadata.At("name").Str()
	if namespace := metadata.At("namespace").Str(); namespace != "" {
		name = namespace + "/" + name
	}
	if name != k.Name {
		return fmt.Errorf("the object is %q, not %q", name, k.Name)
	}
	if metadata.At("uid").Str() == "" { // no stored object is without one (object.Locate)
		return errors.New("the object has no UID")
	}
	return nil
}

// decode decodes the value of an object of a built-in kind.
func (p *kindForm) decode(value []byte) (obj object.Value, form uint64, err error) {
	v, err := p.recognize(value)
	if err != nil {
		return object.Nil, 0, err
	}
	switch {
	case p.stored == nil: // an APIService
		if v.apiVersion != apiServiceVersion {
			return object.Nil, 0, p.unknown(v.apiVersion)
		}
		obj, err = v.decode(apiServiceType())
		return obj, 0, err
	case v.apiVersion == definitionsV1beta1 && p.values == definition:
		if obj, err = v.decode(definitionType()); err != nil {
			return object.Nil, 0, err
		}
		obj = toV1(defaultV1beta1(obj))
		return p.current(obj)
	}
	from := p.stored.Version(v.apiVersion)
	if from == nil && isOlder(p.path, v.apiVersion) {
		from, v.apiVersion = p.stored.Storage, p.stored.Storage.APIVersion
	}
	if from == nil {
		return object.Nil, 0, p.unknown(v.apiVersion)
	}
	if obj, err = v.decode(from.Schema()); err != nil {
		return object.Nil, 0, err
	}
	if from == p.stored.Storage {
		return p.current(obj)
	}
	return from.Schema().Settle(obj), 0, nil
}

// unknown is the error for objects of a version that is not read.
func (p *kindForm) unknown(apiVersion string) error {
	return fmt.Errorf("%s is no version of %s that can be read", apiVersion, p.path)
}

// current brings a decoded object of the storage version into the form in which a write would store it.
func (p *kindForm) current(obj object.Value) (object.Value, uint64, error) {
	version := p.stored.Storage
	if version.Default != nil {
		obj = version.Default(obj)
	}
	obj, err := decodeAs(obj, version.Schema())
	return version.Schema().Settle(obj), stampOf(p.stored), err
}

// decodeAs is the value as its type has it.
func decodeAs(obj object.Value, t *schema.Type) (object.Value, error) {
	decoded, err := t.Decode(obj)
	return decoded.Value, err
}

// stampOf is the stamp of what is written now.
func stampOf(k *engine.Kind) uint64 {
	if k.StampOf != nil {
		return k.StampOf()
	}
	return k.Stamp
}

// recognized is a value whose encoding has been found out: a message, or a parsed object.
type recognized struct {
	apiVersion, kind string
	raw              []byte
	obj              object.Value
}

// recognize finds out how a value is encoded, as the reference's recognizers do: by its first bytes, and if those say
// nothing, as YAML, or as base64 of any of the others.
func (p *kindForm) recognize(value []byte) (v recognized, err error) {
	if v, err = parseValue(value); err != nil && !proto.Enveloped(value) && !isJSON(value) {
		if inner, encoded := base64.StdEncoding.AppendDecode(nil, value); encoded == nil {
			v, err = parseValue(inner)
		}
	}
	switch {
	case err != nil:
	case v.kind != p.kind:
		err = fmt.Errorf("the object is of the kind %q, not %q", v.kind, p.kind)
	case v.apiVersion == "":
		err = errors.New("the object has no apiVersion")
	}
	return v, err
}

// parseValue parses JSON or YAML, or an envelope without the message in it.
func parseValue(value []byte) (v recognized, err error) {
	var parsed object.Parsed
	switch {
	case proto.Enveloped(value):
		var envelope proto.Envelope
		envelope, v.raw, err = proto.ReadEnvelope(value)
		v.apiVersion, v.kind = envelope.APIVersion, envelope.Kind
		return v, err
	case isJSON(value):
		parsed, err = object.ParseJSON(bytes.Clone(value))
	default:
		parsed, err = object.ParseYAML(value)
	}
	if err != nil {
		return v, err
	}
	if v.obj = parsed.Value; v.obj.Kind() != object.Map {
		return v, errors.New("the value is no object")
	}
	v.apiVersion, v.kind = v.obj.At("apiVersion").Str(), v.obj.At("kind").Str()
	return v, nil
}

// isJSON says whether a value is taken for JSON: it begins with a bracket.
func isJSON(value []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("{"))
}

// decode decodes the object as a type. The result has the apiVersion and kind of v.
func (v *recognized) decode(t *schema.Type) (object.Value, error) {
	obj := v.obj
	if v.raw != nil || obj.IsNull() {
		var err error
		if obj, err = proto.ParseMessage(t, v.raw); err != nil {
			return object.Nil, err
		}
	}
	return decodeAs(obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(v.apiVersion)}, {Key: "kind", Value: object.StringOf(v.kind)},
	}), t)
}

// decodeCustom decodes the value of a custom object. If its definition is known, and the object is as it would be
// written now, it has a stamp. All others are left as they are: what is to be pruned depends on the definition at the
// time of the read.
func (f *Form) decodeCustom(k store.Key, value []byte) (object.Value, uint64, error) {
	parse := object.ParseJSON
	if bytes.HasPrefix(value, selfDescribedCBOR) {
		parse = object.ParseCBOR
	}
	parsed, err := parse(bytes.Clone(value))
	if err != nil {
		return object.Nil, 0, err
	}
	obj := parsed.Value
	if obj.Kind() != object.Map || obj.At("metadata").Kind() != object.Map {
		return object.Nil, 0, errors.New("the value is no object")
	}
	if obj, err = obj.Untyped(); err != nil {
		return object.Nil, 0, err
	}
	group, _, _ := strings.Cut(k.Resource, "/")
	apiVersion := obj.At("apiVersion").Str()
	if got, _, found := strings.Cut(apiVersion, "/"); !found || got != group {
		return object.Nil, 0, fmt.Errorf("the object is of %q, not of the group %s", apiVersion, group)
	}
	if obj.At("kind").Str() == "" {
		return object.Nil, 0, errors.New("the object has no kind")
	}
	kind := f.registry.Now().Kind(k.Resource)
	if kind == nil || apiVersion != kind.Storage.APIVersion {
		return obj, 0, nil
	}
	decoded, err := kind.Storage.Schema().DecodeStored(obj)
	if err != nil {
		return obj, 0, nil
	}
	current := decoded.Value
	if kind.Storage.Default != nil {
		current = kind.Storage.Default(current)
	}
	if !object.Equal(current, obj) {
		return obj, 0, nil
	}
	return current, stampOf(kind), nil
}

// selfDescribedCBOR is the tag with which CBOR begins in etcd.
var selfDescribedCBOR = []byte("\xd9\xd9\xf7")
