// Package discovery creates the documents that describe to clients what a server serves (URI-8): the discovery
// documents of /api and /apis, one by one and aggregated, the OpenAPI documents of /openapi/v2 and /openapi/v3, and
// /version.
//
// It reads the registry of served types, and the documents of backends, which serve group versions in place of the
// engine ([Remote]). It does not depend on HTTP: [Documents.Get] takes a path and an Accept header and returns bytes.
//
// # Glossary
//
//   - catalog: the types that are served at one moment, in the order of discovery: groups, their versions, their
//     resources.
//   - representation: a document in one media type.
//   - model: a named type in an OpenAPI document.
//   - fragment: the part of an OpenAPI document that describes one model or one path.
//   - section: the part of the OpenAPI v2 document that describes one group version of custom types.
//
// # What is kept
//
// Problem: the built-in types alone make an OpenAPI v2 document of several megabytes, a cluster may have thousands of
// custom types, and clients request the documents again after every new definition. To print every document after each
// change would make each definition cost time in proportion to all of them.
//
// Therefore a document is printed on its first request and kept as bytes, compressed if it is large. Fragments are
// written one after the other into the compressor, so no large document is ever in memory as a whole. Documents belong
// to their group version. When the registry changes, a new catalog takes over the group versions whose types are the
// same (the same *engine.GroupVersion), with everything printed of them. A change then costs the documents of its own
// group version, the lists of groups, and the two documents about all types: aggregated discovery, which copies the
// kept parts of the other group versions, and OpenAPI v2, which copies the kept sections of custom types and prints
// the built-in types again.
//
// Custom types are described by the schemas in their definitions. They are not compiled for it. The documents of
// backends are copied as they are; who fetches them calls nothing here, and returns others from Config.Remotes.
//
// ETags, and the hashes in the URLs of OpenAPI v3 documents, are hashes of the documents' bytes, so clients can keep
// documents when the server restarts. The index of OpenAPI v3 has the hashes of all documents. Therefore its first
// request prints every document once, and compiles the schemas of all built-in types.
package discovery
