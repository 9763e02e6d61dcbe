// Package discovery asks the server what it serves in the ways in which real clients do: client-go's discovery client,
// with and without aggregation, and the mapper on top of it; the OpenAPI clients of kubectl and of server-side apply;
// and kubectl itself.
//
// What Plinth tells is compared with the reference's documents in the product's own tests (internal/discovery). Here is
// shown that the clients understand it.
package discovery
