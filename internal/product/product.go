// Package product says which release of Plinth a program is, and what it was built from. The version of the product
// is not that of the Kubernetes API that it serves, which is plane.Version.
package product

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

// version is the file VERSION: the release that is being worked on, or that this is.
//
//go:embed VERSION
var version string

// from and at, the commit and its date, are set by the linker in the programs of a release. Their build does not look
// at the checkout, so that it is the same elsewhere.
var from, at string

// Build is what a program was built from.
type Build struct {
	Version  string // semantic, without "v"; with the suffix -dev if it is no release
	Hash     string // of the commit; "" if it is not known: the program was built outside of a checkout, or by go run
	Date     string // of the commit, RFC 3339
	Modified bool   // files of the checkout differed from the commit
}

// Built is what this program was built from.
func Built() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return built(strings.TrimSpace(version), from, at, info)
}

func built(version, from, at string, info *debug.BuildInfo) Build {
	if from != "" {
		return Build{Version: version, Hash: from, Date: at}
	}
	b := Build{Version: version}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Hash = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	// The go command knows the tag: of a clean checkout, and of go install MODULE@TAG.
	if b.Modified || info.Main.Version != "v"+version {
		b.Version += "-dev"
	}
	return b
}

// From is the commit and its date for people.
func (b Build) From() string {
	switch {
	case b.Hash == "":
		return "unknown"
	case b.Modified:
		return b.Hash + " (modified)"
	case b.Date != "":
		return b.Hash + " of " + b.Date
	}
	return b.Hash
}
