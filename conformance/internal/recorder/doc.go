// Package recorder looks for inputs that tell the mutants of a package from the package itself (see package mutation),
// where upstream gives the same answer as the package does: the tables of the product's own tests are made of them.
//
// It is compiled under the overlay of a package's mutants alone, with the build tag "mutants":
//
//	go run ./mutants/overlay internal/builtin/columns DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./builtin -run TestRecordCells
package recorder
