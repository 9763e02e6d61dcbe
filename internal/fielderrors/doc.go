// Package fielderrors collects the errors of validation rules, with the messages of apimachinery and in the order in
// which they are found. The rules themselves are in packages objectmeta, builtin/validation and crd/validation.
//
// Its nouns: a [Location] is a position in an object; it is converted to a path only for an error. [Errors] is the list
// of errors. [Show] and its siblings print a value as the reference prints the corresponding Go value.
//
// Problem: validation runs on every write, and almost always finds no error. Rules that build a field.Path on the way
// down allocate for every field, valid or not. Therefore a rule allocates no memory before it has an error: places are
// on the stack, and values are not passed as interfaces.
package fielderrors
