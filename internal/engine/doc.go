// Package engine does the verbs: one file each, read from top to bottom. It knows resources, objects and revisions, and
// nothing of HTTP.
//
// A draft is one object on its way from a request into the store; draft.go has its steps, and says which verb takes which.
//
// Glossary. To decode is to check a body against its schema; to default is to fill in what the reference fills in; to own is
// to note in metadata.managedFields who owns what; to admit is to let mutating admission change or refuse it; to prepare is
// to reset what a client may not set at this URL; to settle is to bring it into the form in which it is stored; to validate
// is to refuse what the reference refuses; to check is to let validating admission and quota refuse it; to commit is to hand
// bytes to the store on the condition that nobody was faster. A lost race starts the verb again from the top, in a for loop
// that stands in the verb's own file.
package engine
