// Package crd holds what Plinth's validation says of CustomResourceDefinitions against what upstream's says: the
// strategies of the real API server, called with the same definitions, good ones and such that have been changed for
// the worse.
package crd
