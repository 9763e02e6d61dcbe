// Package engine does the verbs: one file each, read from top to bottom. It knows resources, objects and revisions, and
// nothing of HTTP.
//
// Glossary. To decode is to check a body against its schema; to default is to fill in what the reference fills in; to
// admit is to let admission change or refuse it; to validate is to refuse what the reference refuses; to commit is to
// hand bytes to the store on the condition that nobody was faster. A lost race starts the verb again from the top, in a
// for loop that stands in the verb's own file.
package engine
