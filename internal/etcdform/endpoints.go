package etcdform

import (
	"errors"

	"plinth/internal/store"
	"plinth/object"
)

// endpoints is the path of the kind whose values the keys of servers have: masterleases and peerserverleases.
const endpoints = "/endpoints"

// EncodeServer returns the value of a key by which a server says that it runs. obj is the v1 Endpoints in it, which are
// no object: they have no name and no UID.
func (f *Form) EncodeServer(obj object.Value) ([]byte, error) {
	return f.Encode(store.Key{Resource: endpoints}, object.AppendObject(nil, obj))
}

// DecodeServer returns the Endpoints in the value of such a key.
func (f *Form) DecodeServer(value []byte) (object.Value, error) {
	p := f.byPath[endpoints]
	if p == nil {
		return object.Nil, errors.New("the type Endpoints is not served")
	}
	v, err := p.recognize(value)
	if err != nil {
		return object.Nil, err
	}
	version := p.stored.Version(v.apiVersion)
	if version == nil {
		return object.Nil, p.unknown(v.apiVersion)
	}
	return v.decode(version.Schema())
}
