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
// # An example
//
// PUT /apis/apps/v1/namespaces/default/deployments/web?dryRun=All, with a JSON body and "Accept: application/yaml":
//
//	identify       Audit-Id is chosen, and is a header of the answer, whatever that will be
//	resolveInfo    update of apps/v1 deployments "web" in default; class Mutating
//	limitTime      the context ends after --request-timeout, or ?timeout= if that is shorter
//	authenticate   the user; 401
//	audit          the record begins; impersonate replaces the user if Impersonate-User is there
//	limitInFlight  nothing yet: the slot is taken when the body has arrived
//	authorize      may this user update deployments "web" in default; 403
//	skipBody       nothing: this verb reads its body
//	answer         route finds the Resource and the verb (verbs.go); 404, 405
//	  update       media type of the answer (406), readBody (413, 429), options (400, 422), format of the body (415),
//	               parse (400), Engine.Update, the answer
//	end            the audit record is written, the slot is given back, metrics are counted
//
// So of a client without credentials the server reads the header of its request, and nothing else; of one that may not
// do what it asks for, no body.
//
// # The media type of an answer
//
// Accept decides two things: the encoding (JSON, YAML, protobuf, CBOR) and the form, which is the object, a row of a
// Table, or its metadata alone. "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", which kubectl get
// sends, asks for a Table in JSON, and for the object where there is no Table. negotiate takes the first of them that
// the type has, before the verb does anything: a write whose answer could not be sent must not happen. An error is
// sent in the encoding of Accept, too, and in JSON if there is no such encoding (fail).
//
// # Errors
//
// A verb returns an *apierr.Error, which is a Status with its code, or any other error, which is 500. Once a byte of
// the answer has been sent, there can be no Status: a watch sends an ERROR event, everything else breaks the connection
// off (fail), because a client cannot tell a list that ends early from a short one.
//
// # Limits
//
// What a request holds while it waits is bounded: a body by BodyLimit, all bodies that are being read by BodyMemory,
// an answer by a buffer, a client that stops reading by StallTimeout, and a client that sends slowly by bodyRate and
// BodyGrace. The number of requests under way is bounded by MaxInFlight and MaxMutating, that of watches is not: a
// waiting watch costs a goroutine with its stack, a cursor and a context (watch).
package httpapi
