// Package aggregation sends group versions to other API servers (EXT-2). An APIService with a service names one: all
// requests to its group version are forwarded there, and what it serves is in the discovery and OpenAPI documents.
//
// # Glossary
//
//   - backend: the server behind an APIService with a service.
//   - route: one group version that goes to a backend.
//   - local: an APIService without a service. This server serves its group version; the object only says so.
//
// # What costs nothing
//
// Every request asks whether its group version has a route. The routes are a view of the APIServices: a value that is
// compiled when one has changed, and that is nil as long as all are local.
//
// # What a backend can do
//
// A backend may be slow, dead or wrong, so nothing that concerns others waits for it. Its documents are fetched in
// the background ([Aggregator.Changed]), each group version on a goroutine of its own, within limits of time and
// size; those that were fetched last are published, and marked as stale. Whether a backend is available is checked by
// a controller (package controller), with [Aggregator.Check], and written to the status of its APIService. While it
// is not, its requests are answered with 503 and do not leave this server.
package aggregation
