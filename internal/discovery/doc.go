// Package discovery makes the documents in which a server tells clients what it serves (URI-8): the discovery documents
// of /api and /apis, one by one and aggregated, the OpenAPI documents of /openapi/v2 and /openapi/v3, and /version.
//
// It reads the registry of served types and nothing else, and speaks no HTTP: [Documents.Get] takes a path and an
// Accept header and gives bytes.
//
// Nouns. A catalog is the types that are served at one moment, in the order in which discovery tells it: groups, their
// versions, their resources. An edition is a document in one media type. A model is a named type in an OpenAPI
// document; a fragment is the part of a document that one model or one path makes.
//
// Nothing is made before somebody asks for it, and what has been made is kept as bytes, compressed where it is large:
// fragments are printed one after the other into a compressor, so that a document of several megabytes never stands
// in memory as a whole. When the registry changes, a new catalog takes over the group versions that are the same
// ones, what has been made of them included. So one type more costs the documents of its own group version, the lists
// of groups, and copying in the aggregated documents and in OpenAPI v2, one document of everything, of which each
// group version of custom types keeps its part; the part of the built-in types is printed again.
//
// Custom types are described by the schemas of their definitions, which are read for it and not compiled.
//
// The ETag of a document, and the hash in the URL of an OpenAPI v3 document, are of its bytes: clients keep documents
// by them over restarts of the server. The index of OpenAPI v3 names the hashes of all documents, so the first one to
// ask for it waits until each has been printed once, and with it the schemas of all built-in types have been
// compiled.
package discovery
