// Package discovery reads discovery and OpenAPI with real clients: client-go's discovery client, with and without
// aggregation, and the RESTMapper on top of it; the OpenAPI clients of kubectl and of server-side apply; and kubectl.
//
// The documents are compared with the reference's in the product's own tests (internal/discovery). These tests show
// that clients understand them.
package discovery
