// Package fairness decides which requests are served now, which wait, and which are refused, so that the flood of one
// client does not keep out the others: the API Priority and Fairness of Kubernetes (KEP-1040), from FlowSchemas and
// PriorityLevelConfigurations.
//
// Nouns:
//
//   - a flow schema matches requests and names the level that they belong to. The first one that matches counts.
//   - a level (PriorityLevelConfiguration) has a number of seats. A request occupies one seat or several while it is
//     served. The exempt level has no limit.
//   - a flow is the requests of one flow schema with the same distinguisher: its user, or its namespace.
//   - a queue is a sequence of requests that wait for seats. A level has many; each flow has a hand of a few of them.
//   - virtual time R advances by the seat-seconds that each queue gets. The queue whose next request would end first in
//     virtual time is served next.
//   - a Ticket is one request in the queues of a level.
//
// Queues is a pure data structure: it has no clock, no goroutine and no lock. Level has the lock and makes requests
// wait. Fairness classifies requests, and divides the seats among the levels, anew every ten seconds.
//
// Seats bound how many requests are under way. How many of them execute at one time is bounded by a Limiter (package
// execution), whose bands are the levels, with their nominal seats as weights, and whose flows are those here.
//
// The numbers are those of the reference (k8s.io/apiserver/pkg/util/flowcontrol), with which
// conformance/oracle/fairness compares.
package fairness
