// Command release builds all that a release of Plinth is given away as, from one table of platforms (platforms.go) and
// one of facts about the product (release.go): programs, archives, packages for Linux, an image, the index for envtest,
// a wheel and npm packages, and the descriptions by which Homebrew, krew, Helm and the actions of GitHub install
// them.
//
// The same commit and the same Go give the same bytes, wherever the checkout is. Nothing is published:
// docs/releasing.md has what a person does with the files.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.source, "source", "..", "the checkout")
	flags.StringVar(&o.out, "out", "../bin/release", "the directory to write to; what a release left there is replaced")
	flags.StringVar(&o.home, "home", "", "the URL of the project's repository")
	flags.StringVar(&o.files, "files", "", "the URL of the directory in which the files will be; "+
		"by default that of a release on GitHub: HOME/releases/download/vVERSION")
	flags.BoolVar(&o.trial, "trial", false, "build a release that is not to be given away: "+
		"without a licence, of a checkout with changes, with the URLs of examples")
	only := flags.String("platforms", "", "build for these only, separated by commas: linux/amd64,darwin/arm64")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *only != "" {
		o.platforms = strings.Split(*only, ",")
	}
	began := time.Now()
	r, err := prepare(o)
	if err != nil {
		return err
	}
	if err := r.build(); err != nil {
		return err
	}
	fmt.Printf("%s %s is in %s after %s.\n", name, r.version, r.out, time.Since(began).Round(time.Second))
	if o.trial {
		fmt.Println("It is a trial, and not to be given away.")
	}
	return nil
}
