// Package cel holds what Plinth makes of the rules of custom types (x-kubernetes-validations) against what the
// reference's own packages make of them: whether a rule compiles and with which error, what it may cost, what it says
// of an object, and what it did cost.
//
// Rules come from a table, which calls every function that the language has; from a generator of schemas, rules and
// objects; and from the definitions of Gateway API.
package cel
