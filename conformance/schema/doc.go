// Package schema compares the compiled types of plinth/schema with the typed codecs of Kubernetes: the same text
// decoded by both gives the same JSON, the same refusals in the same words and the same unknown fields; the stored form
// is what a round trip through protobuf leaves; and the markers and defaults are those that the reference tells of in
// /openapi/v3.
//
// The random cases of a run come from one seed, which a failure prints; -seed and -cases repeat or extend a run.
package schema
