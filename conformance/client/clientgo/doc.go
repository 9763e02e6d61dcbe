// Package clientgo runs client-go against a server, as controllers and tools do: typed and dynamic clients, discovery
// and mapping, informers, leader election, watches, retries on conflict. Beyond upstream's own tests, it requires that
// informers finally hold exactly the server's objects, and that they continue after a kill -9.
//
// Clients have their default settings: an informer asks for a streaming list first, and would wait forever on a server
// that ignores the parameter.
package clientgo
