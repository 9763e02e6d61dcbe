// Package proto converts stored objects to Kubernetes' protobuf, and bodies of protobuf to values (MED-3). It takes
// the field numbers from a [schema.Type], so that it serves every built-in type and needs none of their Go types.
// Lists, watch events and partial metadata, which are made of several messages, are in package wire.
//
// # Glossary
//
//   - message: what the generated code of a Go type writes, byte for byte, zero values included.
//   - envelope ([Envelope]): the bytes around the message of an object, with apiVersion and kind; on the wire and in
//     etcd alike.
//   - plan: a struct type as the transcoder needs it: fields by JSON name and by field number, tags, and the bytes of
//     absent fields.
//   - splice: the offset in stored bytes at which resourceVersion is inserted (package object).
//
// # How a message is made
//
// The stored bytes are canonical JSON. Protobuf can also be made by way of a Go struct, or of a tree of values: the
// first needs a Go type per kind, and both allocate for every field. A transcoder goes from bytes to bytes in one pass
// instead. It has one problem to solve: JSON has members by name, and a message has fields by number,
//
//	order of members(JSON) ≠ order of fields(message)
//
// so the fields of a struct are written to a scratch buffer as they are read, and put in order when the struct ends
// (transcode.go). [Parse] has the opposite problem: it collects the members of a message, and sorts them by name at its
// end. Plans are made when a type is first used, and kept.
//
// # Caveats
//
// The result equals the reference's bytes; it is not merely an equivalent message. So an absent field is written where
// the generated code writes it: as the zero value of every type that is neither a pointer nor a list or map.
package proto
