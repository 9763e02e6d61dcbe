// Package initial compares the objects that a server has before anybody has written to it with those of the reference:
// all of them, in both directions, with their managers. testdata/objects.yaml is what the reference has; -rewrite
// brings it up to date.
package initial
