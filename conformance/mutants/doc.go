// Package mutants changes the rules of built-in and custom types one by one, and demands that a test notices each
// change: validation, defaults, columns, warnings, conversions, the validation of definitions, protobuf, views, and
// those admission plugins whose files the target lists.
//
// The mutants are found by package mutation; the tests are those of the product, whose expected results were recorded
// from the reference, and for admission plugins also those of oracle/admission, which run the reference's plugins:
// TestMutants there runs their attempts on many mutants in one process. "go test ./mutants" tries a sample of
// validation and of defaults, "go test ./mutants -all" (make nightly) tries every one.
//
// testdata has a file for each package. Its first line has the figures. Below it are the mutants that no test notices,
// a line each, with the reason why no test can distinguish them from the original ("= name :: reason"). It is an error
// if a mutant in the file is noticed, and if one that is not in the file is not noticed. "go test ./mutants -all
// -update" writes the figures anew and adds the other mutants that no test notices ("? name"): each of these lines is
// an error until it has a reason, or a new test case notices the mutant.
package mutants
