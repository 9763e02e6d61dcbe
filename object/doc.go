// Package object holds the values that Kubernetes objects are made of, and reads and prints them as JSON and YAML.
//
// A [Value] is null, a boolean, a number, a string, a list or a map. It is immutable: no function of this package
// changes a value after returning it, and callers must not write to the slices of [Value.Items] and [Value.Members].
// Therefore the old and the new form of an object, and all goroutines, may share subtrees, and a change copies only the
// maps and lists on the path from the root to the changed member.
//
// # Glossary
//
//   - parse: to turn bytes into a value ([ParseJSON], [ParseYAML], [ParseCBOR]).
//   - decode: to check a value against a type. That is package schema.
//   - print: to turn a value into its canonical bytes ([AppendObject], [AppendJSON]).
//   - member: a key and its value in a map; item: a value in a list.
//   - stored object: canonical bytes without metadata.resourceVersion, which is known only at commit. [Locate] finds
//     the offset at which it is spliced in when the object is written out.
//
// # Canonical form
//
// At the top level, apiVersion, kind and metadata come first; all other members are in byte order of their keys;
// strings are escaped as encoding/json escapes them; there is no white space. A client sends
//
//	{"kind": "ConfigMap", "data": {"b": "1", "a": "<"}, "apiVersion": "v1", "metadata": {"name": "c"}}
//
// and the canonical form is
//
//	{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"\u003c","b":"1"}}
//
// The members of every map are strictly ascending. Therefore
//
//	Equal(a, b) ⇔ print(a) = print(b)        parse(print(v)) = v
//
// except for floats and for strings that are not UTF-8 (see [AppendStored]): the Float 1.0 is printed as 1, like the
// Int. So the whole server detects that an object has not changed with bytes.Equal. With metadata in front, most
// readers of stored bytes find what they need without reading the rest ([Locate]).
//
// # Numbers
//
// An integer that fits 64 bits is an [Int]. Every other literal is kept as text ([Number]) until it is decoded with a
// type, because its meaning depends on the type: 1.0 is an error for an integer of a built-in type and 1 in a custom
// one, 0.10 as a quantity is 100m, and 12345678901234567890 exceeds every integer type, but has a nearest float.
// [Value.Untyped] gives the meaning of a literal without a schema.
//
// # Untrusted input
//
// The parsers are the first to read the body of a request. Whatever it contains, each of them takes memory linear in
// its length, and linear time except for sorting keys: the depth is bounded ([MaxDepth]), duplicate keys are reported
// up to a bound, and the aliases of YAML are measured before they are expanded ([MaxExpansion]). The caller bounds the
// length of the body (WRITE-6).
//
// # Caveats
//
// Strings of a parsed value point into the input, and small lists and maps are cut from slabs that they share with
// their neighbours. So a small part of a large body keeps the body in memory; clone what is kept for long.
//
// The operator == compares the memory of two values. Equal memory implies equal content; the reverse holds only for
// scalars other than strings. It is a fast way to detect an unchanged subtree.
package object
