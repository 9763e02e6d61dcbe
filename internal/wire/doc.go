// Package wire turns stored objects into what clients read: media types, lists, tables, metadata alone, and the frames
// of a watch (MED-1…MED-8, WATCH-1). It works on bytes and values and knows nothing of HTTP but the syntax of an Accept
// header.
//
// Its nouns: a [Media] is how a client wants an answer, as [Negotiate] has found out; a [ListMeta] is what stands at the
// head of a collection; a [Table] prints objects as rows; [Frames] prints the events of one watch.
//
// Stored bytes are canonical JSON (package object), so printing an object is copying it with its resourceVersion spliced
// in, and its metadata is a slice of it. Every function appends to a buffer of its caller's and allocates nothing for an
// item of a list or an event of a watch, but for the first row that a Table shows of a stored version: its cells are made
// from the parsed object and kept, with holes for ages.
//
// Protobuf is made from the same bytes, in one pass over them, by the field numbers of the type: a plan says for each
// struct what stands under which number, and a transcoder follows it. The result is what the code generated for the Go
// types would write, byte for byte, zero values included. It is read into values by the same numbers ([ParseProtobuf]).
// Of what a stored version was made into once, [Forms] keeps as much as fits into a bound.
package wire
