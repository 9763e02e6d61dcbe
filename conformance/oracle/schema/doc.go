// Package schema compares the compiled types of plinth/schema with the typed codecs of Kubernetes: both decode the same
// text to the same JSON, with the same errors and the same unknown fields; the stored form is what remains after
// encoding to protobuf and decoding; and markers and defaults are those of the reference's /openapi/v3.
//
// The random cases of a run come from one seed, which a failure prints; -seed and -cases repeat or extend a run.
package schema
