// Command overlay writes the overlay (go build -overlay) with which a package is built together with all its mutants.
// The programs that search for cases which notice mutants run with it:
//
//	go run ./mutants/overlay internal/builtin/validation DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/validation -run TestRecord
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"plinth/conformance/internal/mutation"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("overlay PACKAGE DIR")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		log.Fatal(err)
	}
	pkg, err := mutation.Parse(root, mutation.Path(os.Args[1]), nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(os.Args[2], 0o755); err != nil {
		log.Fatal(err)
	}
	overlay, err := pkg.Overlay(root, os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d mutants\n", overlay, len(pkg.Mutants))
}
