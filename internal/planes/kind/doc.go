// Package kind is the type Plane: a control plane beside the one at /, as an object of that one. It is what clients see
// of planes; package planes opens, stores and deletes them.
//
// The type is described by a definition, plane.yaml, as a custom type is (crd.BuiltIn): its schema, its OpenAPI model,
// its defaults and its subresource status come from there, and it has the media types and patches of a custom type.
// What a definition cannot say is here:
//
//	name        a DNS label: it may become one of a host name
//	permit      who creates a plane from another one needs the verb access on that one
//	validate    quantities, and what cannot be changed
//	set status  what follows from the object and the time of its commit: URL, phase, origin, time of expiry, and the
//	            condition Ready of a new plane
//
// What changes with every write inside a plane (its objects, bytes, requests, memory) is no part of set status: package
// planes writes it to the subresource status, at the latest when somebody reads it (Config.Refresh).
package kind
