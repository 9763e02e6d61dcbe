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
//   - a Capacity is what a process has for all its planes: seats, room for requests that wait, and places. A Share is
//     what one plane has of it, and a portion what one level has of the share.
//
// Queues is a pure data structure: it has no clock, no goroutine and no lock. Level has the lock and makes requests
// wait. Fairness classifies requests, and divides the seats among the levels, anew every ten seconds.
//
// Where a process has one plane, there is no Capacity, and the levels have all seats. Where it has several, planes come
// first: a request needs the seats of its level, and as many of the Capacity. The levels of each plane divide all
// seats, or the limit of the plane, as if it were alone, and the Capacity decides whose turn it is when there are not
// enough.
// The exempt level of a plane is one without a limit of its own, whose requests wait in queues for the seats of the
// plane. That of the first plane, by which a process is examined, needs none.
//
// Seats bound how many requests are under way. How many of them execute at one time is bounded by a Limiter (package
// execution), whose shares are the planes, whose bands are the levels, with their nominal seats as weights, and whose
// flows are those here.
//
// The numbers are those of the reference (k8s.io/apiserver/pkg/util/flowcontrol), with which
// conformance/oracle/fairness compares.
package fairness
