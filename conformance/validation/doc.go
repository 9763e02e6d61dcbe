// Package validation holds what Plinth's validation says of built-in objects against what upstream's says: the
// strategies of the real API server, declarative rules included, linked and called.
package validation
