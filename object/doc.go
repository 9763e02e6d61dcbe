// Package object holds the values that Kubernetes objects are made of, and reads and prints them as JSON and YAML.
//
// A [Value] is immutable: null, a boolean, a number, a string, a list or a map. Subtrees are therefore shared freely
// between the old and the new form of an object and between goroutines. A map is a slice of members sorted by key, so
// two equal objects print as equal bytes.
//
// Glossary. To parse is to turn bytes into a value; to decode (package schema) is to check a value against a type; to
// print is to turn a value into its canonical bytes.
//
// Canonical form: apiVersion, kind and metadata first at the top, then members in byte order of their keys; strings
// escaped as encoding/json does; no white space. metadata.resourceVersion is not part of stored bytes, because it is
// known only at commit: [Locate] finds the place where it is spliced in.
//
// Numbers: an integer that fits 64 bits is an [Int]. Every other literal stays as it was written ([Number]) until
// somebody who knows the type has seen it; [Value.Untyped] is what it means where no type says otherwise.
//
// Caveat: strings of a parsed value point into the input. Whoever keeps a small part of a large body for long should
// clone it.
package object
