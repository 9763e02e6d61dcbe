// Package cel compares the rules of custom types (x-kubernetes-validations) in Plinth with the reference's own
// packages: whether a rule compiles and with which error, its estimated cost, its errors for an object, and its actual
// cost.
//
// Rules come from a table, which calls every function of the language; from a generator of schemas, rules and objects;
// and from the definitions of Gateway API.
package cel
