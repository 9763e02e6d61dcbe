package store

import "github.com/fxamacker/cbor/v2"

// Attribution says who has made a commit, and how. It is stored with the commit (docs/formats.md), and memory does not
// keep it. A field is empty if there is nothing to say. As bytes it is CBOR.
type Attribution struct {
	User         string `cbor:"1,keyasint,omitempty"` // as whom the request was made
	Impersonator string `cbor:"2,keyasint,omitempty"` // who has asked to be User; "": User has authenticated
	Manager      string `cbor:"3,keyasint,omitempty"` // the field manager
	Verb         string `cbor:"4,keyasint,omitempty"` // that was authorized, in lower case; "": the server has written
	Subresource  string `cbor:"5,keyasint,omitempty"`
	AuditID      string `cbor:"6,keyasint,omitempty"` // of the request, as in the audit log
}

// Encode returns the bytes.
func (a *Attribution) Encode() []byte {
	b, err := cbor.Marshal(a)
	if err != nil {
		panic("store: an attribution cannot be encoded: " + err.Error()) // strings always can
	}
	return b
}

// AttributionOf is the inverse of Encode; nil for no bytes. Fields that later versions add are ignored.
func AttributionOf(b []byte) (*Attribution, error) {
	if len(b) == 0 {
		return nil, nil
	}
	a := &Attribution{}
	return a, cbor.Unmarshal(b, a)
}
