// Package audit writes down who asked for what, and what became of it (AUTH-4), as audit.k8s.io/v1 has it.
//
// Its nouns:
//
//   - a [Policy] says of each request at which level it is written down, and which stages of it;
//   - a [Record] belongs to one request and grows while that is served: who asks, as whom, for what, with which body,
//     and what the answer is. A request that the policy does not want written down has none: every method of a nil
//     *Record does nothing;
//   - an event is what a record looks like at one stage: when the request has come, when a long answer begins, when the
//     answer is complete, or when the server has panicked;
//   - a backend takes events: the log, which is a file that is rotated or standard output, and the webhook. Each has a
//     mode: blocking writes before the request goes on, blocking-strict refuses the request where that fails, batch
//     puts the event into a queue.
//
// An event is encoded once for each backend when it happens, so that nothing of a request is held by a queue but bytes,
// and those up to a bound. What cannot be delivered is dropped, counted under the reference's names (see [Counters]),
// and the log of the server says so.
//
// Bodies are part of an event at the levels Request and RequestResponse alone: a Secret shows at no other.
package audit
