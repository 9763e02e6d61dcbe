// Package httpapi is the HTTP front of the engine: it finds out what a request is about, who sends it and whether
// they may, reads its options and body, calls one verb of the engine, and writes the answer in the media type that
// the client asked for.
//
// # Terminology
//
//   - a requestState is one request and everything that is known of it so far, up to the answer;
//   - a requestInfo is what the URL says: verb, resource type, namespace, name, subresource (Kubernetes's RequestInfo);
//   - a filter is one entry of the list that every request passes, in order (see filters). The last one answers;
//   - a verb is one file: create.go, get.go, list.go, watch.go, update.go, patch.go, delete.go, deletecollection.go.
//     The table of verbs (see verbs) also lists the verbs that are not implemented.
//
// # Structure
//
// Filters and verbs return errors; Handler.fail is the only place that writes them (URI-9). Media types, their
// parameters and their negotiation are in package wire.
//
// A request is served by one goroutine and without nested closures: a stack trace from the middle of a write shows
// the handler, the verb, and then the engine.
//
// # Limits
//
// What a request holds while it waits is bounded: a body by BodyLimit, all bodies that are being read by BodyMemory,
// an answer by a buffer, a client that stops reading by StallTimeout, and a client that sends slowly by bodyRate and
// BodyGrace.
package httpapi
