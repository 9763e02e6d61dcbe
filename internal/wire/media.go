package wire

import "strings"

// Offer is the set of media types that the server offers for a resource.
type Offer struct {
	CBOR bool // among the encodings (gate CBORServingAndStorage)
	Lean bool // clients may omit managedFields (gate ManagedFieldsOptOut)
	// NoTables says that the resource has no Table (MED-6).
	NoTables bool
	// NoMessages says that its objects have no protobuf form, except for their metadata, and no strategic merge patch:
	// they are custom objects (MED-3).
	NoMessages bool
}

// Form is the form in which an object is sent.
type Form uint8

// The forms.
const (
	Plain      Form = iota // the object itself
	AsTable                // a row of a Table (MED-6)
	AsPartial              // PartialObjectMetadata (MED-7)
	AsPartials             // PartialObjectMetadataList
)

// formOf finds a form by the kind that a client requests.
func formOf(kind string) (Form, bool) {
	switch kind {
	case "Table":
		return AsTable, true
	case "PartialObjectMetadata":
		return AsPartial, true
	case "PartialObjectMetadataList":
		return AsPartials, true
	}
	return Plain, false
}

// Media is how a response is sent: its encoding, its form and the other parameters of a media type.
type Media struct {
	Encoding Encoding
	Form     Form
	Version  string // of the group meta.k8s.io, for forms other than Plain: "v1" or "v1beta1"
	Pretty   bool
	// Lean omits metadata.managedFields: the parameter drop=metadata.managedFields (MED-10, KEP-5958).
	Lean bool
}

// AppendTag appends the part of an entity tag that distinguishes this form and encoding from all others: "j" is JSON,
// "jm1" its metadata.
func (m Media) AppendTag(b []byte) []byte {
	b = append(b, "jypc"[m.Encoding])
	switch {
	case m.Form == AsPartial && m.Version == "v1":
		b = append(b, "m1"...)
	case m.Form == AsPartial:
		b = append(b, "mb"...)
	}
	if m.Pretty {
		b = append(b, 'i')
	}
	if m.Lean {
		b = append(b, 'l')
	}
	return b
}

// metaGroup is the API group of tables and partial objects.
const metaGroup = "meta.k8s.io"

// Negotiate returns the Media of the first clause of an Accept header that the server can satisfy. An empty header is
// JSON. ok is false if there is no such clause.
func (o Offer) Negotiate(accept string) (m Media, ok bool) { return o.negotiate(accept, true) }

// NegotiateError is Negotiate for an error, which is neither a Table nor partial metadata.
func (o Offer) NegotiateError(accept string) (m Media, ok bool) { return o.negotiate(accept, false) }

func (o Offer) negotiate(accept string, forms bool) (Media, bool) {
	switch accept { // the headers that most clients send need no parsing
	case "", rows[JSON].name, "*/*", jsonOrAny:
		return Media{}, true
	case rows[Protobuf].name, protobufOrJSON:
		if !o.NoMessages {
			return Media{Encoding: Protobuf}, true
		}
	}
	var a Accept
	a.parse(accept)
	for i := range a.count {
		c := &a.list[i]
		for encoding := range o.end() {
			if !c.Names(encoding.String()) {
				continue
			}
			if m, ok := c.media(encoding); ok && (forms || m.Form == Plain) && o.has(m) {
				m.Lean = m.Lean && o.Lean
				return m, true
			}
		}
	}
	return Media{}, false
}

// has says whether the requested resource has this form in this encoding.
func (o Offer) has(m Media) bool {
	return !(o.NoTables && m.Form == AsTable) && !(o.NoMessages && m.Form == Plain && m.Encoding == Protobuf)
}

// media reads the parameters of a clause; ok is false if one of them requests a form that does not exist.
func (c *Clause) media(encoding Encoding) (Media, bool) {
	m := Media{Encoding: encoding}
	var kind, group string
	transform := false
	for key, value := range c.eachParam {
		switch key {
		case "as":
			kind, transform = value, true
		case "g":
			group, transform = value, true
		case "v":
			m.Version, transform = value, true
		case "stream":
			if value != "" && (value != "watch" || !encoding.Streams()) {
				return m, false
			}
		case "sv":
			if value != "" && value != "v1" {
				return m, false
			}
		case "pretty":
			m.Pretty = value == "1"
		case "drop":
			m.Lean = m.Lean || dropsManaged(value)
		}
	}
	if !transform {
		return m, true
	}
	form, ok := formOf(kind)
	m.Form = form
	return m, ok && (form != AsTable || rows[encoding].tables) && group == metaGroup &&
		(m.Version == "v1" || m.Version == "v1beta1")
}

// dropsManaged says whether metadata.managedFields is among the fields that a client omits. Others are ignored, as the
// KEP requires, so that later servers can support them.
func dropsManaged(fields string) bool {
	for field := range strings.SplitSeq(fields, "+") {
		if field == "metadata.managedFields" {
			return true
		}
	}
	return false
}
