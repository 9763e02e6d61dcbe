// Package httpapi is HTTP ⇄ engine: it finds out what a request is about, whether it may be done, and what it says; has
// one verb of the engine done; and prints the result in the form that the client asked for.
//
// Its nouns:
//
//   - an exchange is one request and its answer;
//   - a target is what a URL is about: a verb, a resource type, a namespace, a name, a subresource;
//   - a step is one entry of the list that every exchange goes through (see steps); the last one answers;
//   - a verb is one file: create.go, get.go, list.go, watch.go, update.go, patch.go, delete.go, deletecollection.go. The
//     table that leads to them (see verbs) lists what there is not, too.
//
// Steps and verbs return errors; Handler.fail is the one place that writes them (URI-9).
//
// There is one goroutine a request and no chain of closures: a stack trace from the middle of a write shows the handler,
// the verb, and then the engine. What a request holds while it waits is bounded: bodies by a limit each and one for all
// that are being read, answers by a buffer, a reader that has stalled by a deadline, a body that comes slowly by a rate.
package httpapi
