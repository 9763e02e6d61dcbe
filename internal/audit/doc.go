// Package audit writes the audit log (AUTH-4): events of audit.k8s.io/v1.
//
// Its nouns:
//
//   - a [Policy] decides for each request the level of detail, and which stages are omitted.
//   - a [Record] belongs to one request and is completed while that is served: the user, the impersonated user, what is
//     requested, the bodies, and the status of the response. It is nil for a request at level None; every method of a
//     nil *Record does nothing, unless its comment says otherwise.
//   - an event is a record at one stage: when the request was received, when the response of a long-running request
//     starts, when the response is complete, or when the server has panicked.
//   - a sink writes events: the log, to a file that is rotated or to standard output, or the webhook. Each has a
//     mode: blocking writes an event before the request goes on, blocking-strict also refuses the request if that
//     fails, and batch queues the event.
//
// An event is encoded for each sink when it happens: a request changes its record afterwards, and a queue of records
// would keep whole requests in memory. A queue holds a bounded number of bytes (see queue). Events that cannot be
// delivered are dropped, counted under the names of the reference (see [Counters]), and reported in the server's log.
//
// Bodies are part of an event at the levels Request and RequestResponse only; at the others, no Secret is in the log.
package audit
