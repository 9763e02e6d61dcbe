// Package recorder searches for inputs by which a mutant of a package (see package mutation) can be distinguished from
// the package itself, and for which upstream gives the same result as the package. The recorded cases of the product's
// own tests consist of such inputs.
//
// It is compiled only with the overlay of a package's mutants and the build tag "mutants":
//
//	go run ./mutants/overlay internal/builtin/columns DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/builtin -run TestRecordCells
package recorder
