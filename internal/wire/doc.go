// Package wire prints stored objects in the forms that clients request: media types, lists, Tables,
// PartialObjectMetadata and the events of a watch (MED-1…MED-8, WATCH-1). It works on bytes and values; the only part
// of HTTP that it knows is the syntax of an Accept header.
//
// Its nouns: a [Media] is the encoding and the form of a response, as [Offer.Negotiate] returns them; a [ListMeta] is
// the metadata of a list; a [Table] prints objects as rows; [Events] prints the events of one watch.
//
// Stored bytes are canonical JSON (package object), so printing an object is copying it with its resourceVersion
// spliced in, and its metadata is a slice of it. Every function appends to the caller's buffer. Printing an item of a
// list or an event of a watch as JSON does not allocate, except for what is kept for other clients: the metadata of an
// event, and the first row that a Table shows of a stored version, whose cells are made from the parsed object and kept
// with holes for ages.
//
// Messages of protobuf are made from the same bytes (package proto); the list or the watch event around them is written
// here. [EncodedCache] keeps the encoded forms of stored versions, up to a limit.
package wire
