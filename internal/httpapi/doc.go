// Package httpapi is the HTTP front of the engine: it parses the URL of a request, authenticates and authorizes its
// sender, reads its options and body, calls one verb of the engine, and writes the answer in the media type that the
// client accepts.
//
// # Terminology
//
//   - a requestState is one request with everything that is known about it so far, up to the answer;
//   - a requestInfo is the parsed URL: verb, resource type, namespace, name, subresource (Kubernetes's RequestInfo);
//   - a backend answers requests in place of the engine: it forwards them to another server (see Backend);
//   - a slot is what a request takes to be among those under way, whose number is limited (see Slots);
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
//	identify       chooses the Audit-Id, which becomes a header of every answer, errors included
//	resolveInfo    update of apps/v1 deployments "web" in default; class Mutating
//	limitTime      the context ends after --request-timeout, or ?timeout= if that is shorter
//	authenticate   the user; 401
//	audit          the record begins; impersonate replaces the user if the header Impersonate-User is set
//	limitInFlight  takes no slot yet: a request with a body takes it when the body has arrived
//	authorize      may this user update deployments "web" in default; 403
//	skipBody       does not apply: this verb reads its body
//	answer         no backend has apps/v1, so route finds the Resource and the verb (verbs.go); 404, 405
//	  update       media type of the answer (406), readBody (413, 429), options (400, 422), format of the body (415),
//	               parse (400), Engine.Update, the answer
//	end            writes the audit record, gives the slot back, counts metrics
//
// So the server reads only the header of a request without valid credentials, and no body of a request that is
// forbidden.
//
// # The media type of an answer
//
// Accept decides two things: the encoding (JSON, YAML, protobuf, CBOR) and the form, which is the object, a row of a
// Table, or its metadata alone. "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", which kubectl get
// sends, requests a Table in JSON, or the object if the type has no Table. negotiate takes the first clause that the
// type supports, before the verb does anything: a write whose answer could not be sent must not happen. An error is
// sent in the encoding of Accept, too, or in JSON if the server has no such encoding (fail).
//
// # Errors
//
// A verb returns an *apierr.Error, which is a Status with its code, or any other error, which is 500. Once the header
// of the answer has been sent, a Status can no longer replace it: a watch sends an ERROR event, and every other answer
// breaks the connection off (fail), because a client cannot tell a truncated list from a short one.
//
// # Limits
//
// What a request holds while it waits is bounded: a body by BodyLimit, the bodies of all requests without a slot by
// BodyMemory, an answer by a buffer, in which long objects are not copied (wire.Parts), all answers that wait for
// clients by StallMemory, a client that stops reading by StallTimeout, and a client that sends slowly by bodyRate and
// BodyGrace. Acquire bounds the number of requests under way. The number of watches is not bounded: a waiting watch
// costs a goroutine with its stack, a cursor and a context (watch).
package httpapi
