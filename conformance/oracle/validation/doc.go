// Package validation compares Plinth's validation of built-in objects with upstream's. It links and calls the
// strategies of the real API server, including their declarative rules.
package validation
