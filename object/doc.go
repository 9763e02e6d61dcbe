// Package object holds the values that Kubernetes objects are made of, and reads and prints them as JSON and YAML.
//
// A [Value] is null, a boolean, a number, a string, a list or a map. It is immutable: nothing in this package changes
// a value once it has been returned, and callers must not write to the slices of [Value.Items] and [Value.Members].
// The old and the new form of an object, and all goroutines, therefore share subtrees freely, and a change copies only
// the path from the top to the place.
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
// apiVersion, kind and metadata come first at the top; all other members are in byte order of their keys; strings are
// escaped as encoding/json escapes them; there is no white space. A client sends
//
//	{"kind": "ConfigMap", "data": {"b": "1", "a": "<"}, "apiVersion": "v1", "metadata": {"name": "c"}}
//
// and the canonical form is
//
//	{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"\u003c","b":"1"}}
//
// With the members of every map strictly ascending,
//
//	Equal(a, b) ⇔ print(a) = print(b)        parse(print(v)) = v
//
// of which the second holds but for floats and strings that are not UTF-8 (see [AppendStored]). So "nothing has
// changed" is bytes.Equal, everywhere in the server. Go's encoding of a map has all keys in byte order; with metadata
// in front, what most readers of stored bytes look for is found without reading the rest ([Locate]).
//
// # Numbers
//
// An integer that fits 64 bits is an [Int]. Every other literal stays as it was written ([Number]) until somebody who
// knows its type has seen it, because 1.0 is an error for an integer of a built-in type and 1 in a custom one, 0.10 as
// a quantity is 100m, and 12345678901234567890 is in the range of no integer, but has a nearest float.
// [Value.Untyped] is what a literal means where no type says otherwise.
//
// # Input of strangers
//
// The parsers are the first to see a request's body. Each of them takes memory linear in its length, and time but for
// the sorting of keys, whatever it says: depth is bounded ([MaxDepth]), duplicate keys are reported up to a bound, and
// aliases of YAML are measured before they are expanded ([MaxExpansion]). The length itself is bounded by whoever reads
// the body (WRITE-6).
//
// # Caveats
//
// Strings of a parsed value point into the input, and small lists and maps are cut from slabs that they share with
// their neighbours. Whoever keeps a small part of a large body for long should clone it.
//
// Equality of two values with == is that of their memory: equal content implies it for scalars other than strings
// only. It is used to see quickly that nothing has changed.
package object
