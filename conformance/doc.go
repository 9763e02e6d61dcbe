// Package conformance compares Plinth with the reference, a real kube-apiserver: with its recorded responses, with
// upstream's own functions as oracles, and by running real clients and controllers against Plinth. It is a separate
// module because its dependencies, which include all of Kubernetes, are not needed to build the product.
//
// The comment of each package describes what it compares:
//
//   - HTTP responses: requests, attempts, discovery, realcrds, initial, audit, tokens, authentication.
//   - Upstream's functions on generated input: schema, defaults, validation, builtin, columns, crd, custom, cel, merge,
//     patches, authorization, features.
//   - Real clients and programs: clients, cbor, kubectl, apply, envtest, cluster, collection, certificates, languages.
//   - Load and crashes: reading, soak. Measurements: bench. Mutation tests: mutants.
//   - programs builds the programs that some of these tests run.
//
// Shared packages are in internal: harness starts the servers, records reads and writes recorded responses, and
// vectors, scheme and strategies give access to upstream's objects and functions. Plain `go test ./...` needs no
// reference, as it compares with recorded responses. With CONFORMANCE_REFERENCE=1 the reference is built and started,
// too, and the records themselves are checked.
package conformance
