// Package planes kills a server that has planes (plinth serve --planes) while clients create, fork, write and delete
// them, and checks what is there after each restart against a model of what was acknowledged.
//
// The nouns of the model: a slot is a name that planes have one after another, and a life is one plane, from its
// creation to its deletion. A life has a history of changes, each with the revisions that it can have; a fork is a life
// that begins with another one. What a kill has left unanswered is in doubt: the next check decides it, and it must be
// there as a whole or not at all.
//
//	go test ./client/planes -kills 50 -planes 100 -seed 1
package planes
