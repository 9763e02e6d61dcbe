// Package clients drives a server with client-go, as controllers and tools do: typed and dynamic clients, discovery and
// mapping, informers, leader election, watches, retries on conflict. Two things more than upstream's own tests:
// informers have to end up with exactly what the server has, and they have to survive a kill -9.
//
// Clients have their default settings: an informer asks for a streaming list first, and hangs on a server that ignores
// the parameter.
package clients
