// Package proto turns stored objects into Kubernetes' protobuf and bodies of protobuf into values (MED-3). It knows types
// only by what a [schema.Type] says of them, so it serves every built-in type and needs none of their Go types. What is
// specific to an answer (lists, watch events, partial metadata) is in package wire.
//
// Its nouns: a message is what the generated code of a Go type would write, byte for byte, zero values included; an
// [Envelope] is what is around it, with apiVersion and kind, on the wire and in etcd alike.
//
// A message is made from canonical JSON (package object) in one pass over the bytes: a plan says for each struct what
// stands under which number, and a transcoder follows it. [Parse] reads a message into a value by the same numbers. Plans
// and numbers are made once for each type, when it is first used, and kept.
package proto
