// Package execution bounds how many requests execute at one time, to about twice the number of processors.
//
// Seats (package fairness) do not protect a user on few processors: there are hundreds of them, and a request takes
// less than a millisecond, so a flood of requests makes hundreds of goroutines ready to run before it fills its seats,
// and Go's scheduler, which knows no users, runs each in its turn. Behind a Limiter only a few are ready at one time,
// and who is next is decided here.
//
// Nouns:
//
//   - a place is the right to execute. A request has one from Place.Enter to Place.Exit, except while it waits for
//     something else than a processor: a commit, another server, its client (Outside).
//   - a Share is the requests of one plane, with a weight. While several shares want places, each gets time in
//     proportion to its weight. A server without planes has one.
//   - a Band is the requests of one priority level of a share, with a weight. While several bands of a share want
//     places, each gets the share's time in proportion to its weight. One that holds no place gets one beyond their
//     number when it is its turn. So does a share without any, when no place has come free for a moment.
//   - a flow is the requests of one user or one namespace in a band. Within a band all flows get the same time.
//
// Within a flow requests are served in the order in which they arrived. So a request that comes back from outside is
// served before all that have not begun: what was begun is finished, and a long answer is not held up at each of its
// parts by new requests of the same user.
//
// The rule against deadlocks: who waits for another request (a lock, a channel, a shared look-up) has no place, if
// that other one may itself go outside before it is done. Otherwise all places could be held by requests that wait for
// one which waits for a place. So Outside is called around the whole wait, and never under a lock. What waits for a
// disk, another process or a client asserts in tests that it is outside (AssertOutside).
package execution
