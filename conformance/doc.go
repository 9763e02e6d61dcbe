// Package conformance compares Plinth with the reference, a real kube-apiserver: with its recorded responses, with
// upstream's own functions as oracles, and by running real clients and controllers against Plinth. It is a separate
// module because its dependencies, which include all of Kubernetes, are not needed to build the product.
//
// The folders are grouped by what is asked; the comment of each package describes what it compares:
//
//   - http: does a server answer a request as the reference does? Requests and the responses, by subject: requests,
//     attempts (every URL, with few permissions or wrong credentials), discovery, realcrds (definitions that are in
//     use), initial (the objects of a new server), metrics, audit, tokens, authentication, fairness.
//   - oracle: do our functions return what upstream's do, for generated input? schema, defaults, validation, builtin,
//     columns, crd, custom, cel, merge, patches, admission, apiregistration, authorization, discovery, encryption,
//     endpoints, etcdform, fairness, features, metrics.
//   - client: do real clients and programs work, and what the pages say? clientgo, cbor, kubectl, apply, envtest,
//     plinthtest, outside, cluster, collection, planes, controllers, certificates, nodes, operators, policies,
//     aggregation, languages, guides.
//   - load: what happens under load and crashes, and what does it cost? reading, scale, soak, bench, flood, planes.
//   - store: do several servers, and a kube-apiserver beside them, share an etcd, and two releases a directory? Do they
//     answer as one server, whatever fails? etcd, services, replicas,
//     rolling, releases.
//   - console: does the console's page do what it is for, in a real browser, and does nothing run in it that is not its
//     own?
//   - mutants: is a change of the rules noticed by the product's own tests?
//   - monitoring, a module of its own: are the alerts and the dashboard right, and their metrics served?
//   - programs builds the programs that some of these tests run.
//
// Shared packages are in internal: harness starts the servers, records reads and writes recorded responses, and
// vectors, scheme and strategies give access to upstream's objects and functions. Plain `go test ./...` needs no
// reference, as it compares with recorded responses. With CONFORMANCE_REFERENCE=1 the reference is built and started,
// too, and the records themselves are checked.
package conformance
