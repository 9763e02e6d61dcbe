package wire

import (
	"slices"

	"plinth/internal/engine"
)

// Encoding is the format of a body, of a request or a response.
type Encoding uint8

// The encodings, in the order in which a wildcard chooses them.
const (
	JSON Encoding = iota
	YAML
	Protobuf
	CBOR
	encodings = iota // the number of encodings
)

// rows declares the media types of objects, each once (MED-1…MED-4). All lists of accepted and written media types are
// made from these rows and those of patchRows.
var rows = [encodings]struct {
	name   string // in Accept and Content-Type
	stream string // how a watch is requested; "": not possible (MED-2)
	sent   string // the Content-Type of a watch, which is another one for JSON
	tables bool   // Tables are served in it: the reference serves them in text formats only
}{
	JSON: {name: "application/json", stream: "application/json;stream=watch", sent: "application/json", tables: true},
	YAML: {name: "application/yaml", tables: true},
	Protobuf: {name: "application/vnd.kubernetes.protobuf", stream: "application/vnd.kubernetes.protobuf;stream=watch",
		sent: "application/vnd.kubernetes.protobuf;stream=watch"},
	CBOR: {name: "application/cbor", stream: "application/cbor-seq", sent: "application/cbor-seq"},
}

// PatchFormat is a media type of patches: its language, and the encoding of the body.
type PatchFormat struct {
	name     string
	Type     engine.PatchType
	Encoding Encoding
}

// patchRows declares the media types of patches. An apply is YAML, of which JSON is a subset.
var patchRows = []PatchFormat{
	{"application/json-patch+json", engine.JSONPatch, JSON},
	{"application/merge-patch+json", engine.MergePatch, JSON},
	{"application/strategic-merge-patch+json", engine.StrategicPatch, JSON},
	{"application/apply-patch+yaml", engine.ApplyPatch, YAML},
	{"application/apply-patch+cbor", engine.ApplyPatch, CBOR},
}

// Accept headers that many clients send.
var (
	jsonOrAny      = rows[JSON].name + ", */*"
	protobufOrJSON = rows[Protobuf].name + "," + rows[JSON].name
)

// lists are the lists made from the rows for a server with some of the encodings, in the order of the rows.
type lists struct {
	objects, streams, collections, patches []string
	customPatches                          []string // of custom objects
}

// offers are those lists without CBOR and with it.
var offers = [2]lists{offerOf(CBOR), offerOf(encodings)}

// offerOf is the offer of the encodings before end.
func offerOf(end Encoding) (o lists) {
	for _, row := range rows[:end] {
		o.objects = append(o.objects, row.name)
		if row.stream != "" {
			o.streams = append(o.streams, row.stream)
		}
	}
	o.collections = slices.Concat(o.objects, o.streams)
	for _, row := range patchRows {
		if row.Encoding < end {
			o.patches = append(o.patches, row.name)
			if row.Type != engine.StrategicPatch {
				o.customPatches = append(o.customPatches, row.name)
			}
		}
	}
	return o
}

func (o Offer) lists() *lists {
	if o.CBOR {
		return &offers[1]
	}
	return &offers[0]
}

// end is the encoding after the last one of the offer.
func (o Offer) end() Encoding { return Encoding(len(o.lists().objects)) }

// MediaTypes lists the media types that objects are written and read in.
func (o Offer) MediaTypes() []string { return o.lists().objects }

// StreamTypes lists those that a watch is written in.
func (o Offer) StreamTypes() []string { return o.lists().streams }

// CollectionTypes lists all that a collection is written in: whole or as a watch.
func (o Offer) CollectionTypes() []string { return o.lists().collections }

// PatchTypes lists the media types of patches.
func (o Offer) PatchTypes() []string {
	if o.NoMessages {
		return o.lists().customPatches
	}
	return o.lists().patches
}

// Reads returns the encoding of a media type without parameters; ok is false if bodies of it are not accepted.
func (o Offer) Reads(mediaType string) (Encoding, bool) {
	at := slices.Index(o.lists().objects, mediaType)
	return Encoding(max(at, 0)), at >= 0 && !(o.NoMessages && Encoding(at) == Protobuf)
}

// ReadsPatch returns the format of a patch by its media type without parameters. It may be known but not offered.
func (o Offer) ReadsPatch(mediaType string) (f PatchFormat, known, offered bool) {
	for _, row := range patchRows {
		if row.name == mediaType {
			return row, true, row.Encoding < o.end() && !(o.NoMessages && row.Type == engine.StrategicPatch)
		}
	}
	return f, false, false
}

// String returns the media type.
func (e Encoding) String() string { return rows[e].name }

// Streams says whether a watch can be written in the encoding.
func (e Encoding) Streams() bool { return rows[e].stream != "" }

// StreamType returns the Content-Type of a watch. As in the reference, that of JSON has no parameter stream=watch.
func (e Encoding) StreamType() string { return rows[e].sent }

// Encodings lists all encodings.
func Encodings() []Encoding {
	all := make([]Encoding, encodings)
	for i := range all {
		all[i] = Encoding(i)
	}
	return all
}
