// Package discovery makes the documents in which a server tells clients what it serves (URI-8): the discovery documents
// of /api and /apis, one by one and aggregated, the OpenAPI documents of /openapi/v2 and /openapi/v3, and /version.
//
// It reads the registry of served types and nothing else, and speaks no HTTP: [Documents.Get] takes a path and an
// Accept header and gives bytes.
//
// Nouns. A catalog is what one revision of the registry holds, in the order in which discovery tells it: groups, their
// versions, their resources. An edition is a document in one media type. A model is a named type in an OpenAPI
// document; a fragment is the part of a document that one model or one path makes.
//
// Nothing is made before somebody asks for it, and what has been made is kept as bytes, compressed where it is large:
// fragments are printed one after the other into a compressor, so that a document of several megabytes never stands in
// memory as a whole. When the registry changes, a new catalog takes over the group versions whose types are the same
// pointers as before, documents included; everything else is made again when it is asked for.
//
// Caveat: the hash of an OpenAPI v3 document (its ETag, and the hash in its URL) is not taken of its bytes, because the
// index names the hashes of all documents and must not need them all. It is taken of what the bytes follow from: the
// server's version and what discovery tells of the types. Two builds with the same [Version] and different schemas of
// the same types would share a hash.
package discovery
