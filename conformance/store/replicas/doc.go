// Package replicas asks of several Plinths on one etcd what Jepsen asks of a database: do they answer as one server
// would, whatever happens to processes, connections, disks and clocks?
//
// Clients send requests to replicas chosen at random while a schedule of faults runs; in the end all faults are healed,
// everything is read once more, and checkers look at what was seen. The nouns:
//
//   - An op is one request with the times between which it was under way, on one monotonic clock of the test, and its
//     outcome. It was done, or refused: then it changed nothing. Or its outcome is unknown: then it may be carried out
//     once, at any time after it was sent, or never.
//   - A workload is what clients do to objects of one kind, and the rules that hold for it: registers, counters, names,
//     applies, quotas, addresses, finalizers, lists, watches, revisions. Each has a file.
//   - A model is the single server that replicas are compared with: a state per key, and what an op makes of it.
//     Porcupine searches an order of all ops that respects their times and in which each answer is the model's.
//   - The truth is the list of all changes of the objects: as a watch of etcd itself has seen them, or without an etcd
//     as answers and watches of the server agree on them.
//   - A fault has a beginning and an end. The seed decides when which fault begins, on which target, and for how long.
//
// The order of requests among several processes is chance, so a seed repeats the faults and not the history. A run that
// found something writes it to the folder of the test's artifacts (go test -artifacts), or a temporary one.
//
// Caveats: quotas and addresses are compared with what certainly exists, and in etcd itself. A client never resends a
// request; net/http does for requests of which the server has seen nothing.
package replicas
