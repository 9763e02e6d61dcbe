// Package initial compares the objects that a new server creates with those of the reference: all of them, in both
// directions, with their managers. testdata/objects.yaml has the reference's objects; -rewrite updates it.
package initial
