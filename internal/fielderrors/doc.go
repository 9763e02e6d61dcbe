// Package fielderrors collects what is wrong with the fields of an object, in the words of apimachinery and in the
// order in which it is found. Rules for metadata and for kinds are written with it; it has none itself.
//
// Its nouns: a [Place] is where in an object a rule looks; it becomes a path in words only when there is something to
// say. [Errors] is the collection. [Show] and its like print values as the reference prints the Go values that it
// holds.
//
// Rules cost nothing while they find nothing: places live on the stack, and no argument is an interface before there is
// an error.
package fielderrors
