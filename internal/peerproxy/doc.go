// Package peerproxy lets servers on one etcd that serve different types answer as one (URI-12): the mixed-version proxy
// of the reference (feature gate UnknownVersionInteroperabilityProxy, KEP-4020).
//
// # Terminology
//
//   - a peer is another server on the same etcd, with an identity, under which it has a Lease and an address;
//   - what a peer serves are its groups, as its own aggregated discovery (profile=nopeer) says;
//   - a version of a group is shared if objects define it, a CustomResourceDefinition or an APIService with a service.
//     All servers serve it, or are about to.
//
// # What it does
//
// A request for a resource that this server does not serve goes to a peer that serves it, chosen at random, after it
// has been authenticated and authorized here. The peer believes what this server says of the user (package forward) and
// authorizes again. The header of a forwarded request says so, and the peer does not forward it again, so that two
// servers that each think that the other one serves a resource do not send requests back and forth. Aggregated
// discovery has what the peers serve, too (package discovery).
//
// A connection that is upgraded (exec, attach, port forwarding) is copied byte by byte. The peer is told of the user,
// as it is for other requests. The reference does not name the user then.
//
// # What costs nothing
//
// Requests of types that are served here cost one atomic load, and a look into a map if there are peers. Documents of
// peers are fetched when a Lease comes, goes, or gets another holder, which a restarted server is; nothing runs in
// between.
//
// # Shared versions
//
// Those are not taken from what peers serve. Documents of peers are not fetched again when a definition goes, and would
// keep its version alive. As in the reference a shared version is also left out for a while after it is gone (grace): a
// peer may not have noticed yet. The reference then takes it back from the document that it has fetched before; here
// the documents are fetched again.
package peerproxy
