package wire

// Encoding is the format that an answer is printed in.
type Encoding uint8

// The encodings, in the order in which a wildcard takes them.
const (
	JSON Encoding = iota
	YAML
	Protobuf // of request bodies only; answers are in the ones before
)

var mediaTypes = [...]string{JSON: "application/json", YAML: "application/yaml", Protobuf: "application/vnd.kubernetes.protobuf"}

// MediaTypes lists the media types that are written.
func MediaTypes() []string { return mediaTypes[:Protobuf] }

// BodyTypes lists the media types that are read.
func BodyTypes() []string { return mediaTypes[:] }

// StreamTypes lists those that a watch is written in (MED-2: YAML has no stream).
func StreamTypes() []string { return []string{mediaTypes[JSON] + ";stream=watch"} }

// String is the media type.
func (e Encoding) String() string { return mediaTypes[e] }

// Streams says whether a watch can be written in the encoding.
func (e Encoding) Streams() bool { return e == JSON }

// Form is what is made of an object before it is printed.
type Form uint8

// The forms.
const (
	Plain      Form = iota // the object itself
	AsTable                // a row of a Table (MED-6)
	AsPartial              // PartialObjectMetadata (MED-7)
	AsPartials             // PartialObjectMetadataList
)

// formOf finds a form by the kind that a client asks for.
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

// Media is how a client wants an answer.
type Media struct {
	Encoding Encoding
	Form     Form
	Version  string // of the group meta.k8s.io, for forms other than Plain: "v1" or "v1beta1"
	Pretty   bool
}

// metaGroup is the API group of tables and partial objects.
const metaGroup = "meta.k8s.io"

// Negotiate picks what an Accept header wants most. An empty header is JSON. It is not ok if nothing is acceptable.
func Negotiate(accept string) (m Media, ok bool) { return negotiate(accept, true) }

// NegotiateError is Negotiate for an error: it has no other form than itself.
func NegotiateError(accept string) (m Media, ok bool) { return negotiate(accept, false) }

func negotiate(accept string, forms bool) (Media, bool) {
	switch accept {
	case "", "application/json", "*/*", "application/json, */*", "application/vnd.kubernetes.protobuf,application/json":
		return Media{}, true
	}
	var a Accept
	a.parse(accept)
	for i := range a.count {
		c := &a.list[i]
		for encoding := range Protobuf {
			if !c.Names(mediaTypes[encoding]) {
				continue
			}
			if m, ok := c.media(encoding); ok && (forms || m.Form == Plain) {
				return m, true
			}
		}
	}
	return Media{}, false
}

// media reads the parameters of a clause; it is not ok if one of them asks for what there is not.
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
		}
	}
	if !transform {
		return m, true
	}
	form, ok := formOf(kind)
	m.Form = form
	return m, ok && group == metaGroup && (m.Version == "v1" || m.Version == "v1beta1")
}
