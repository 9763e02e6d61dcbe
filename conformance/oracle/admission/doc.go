// Package admission compares each admission plugin with that of the reference, on attributes that are made for it: the
// same object, the same warnings and annotations, or the same refusal (AUTH-3).
//
// The tests are one file for each plugin. compare in harness_test.go runs an attempt on both; a world is the objects
// that the plugin finds. Differences that are intended are cases of their own, with the reason.
package admission
