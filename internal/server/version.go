package server

import (
	"runtime/debug"
	"strconv"

	"plinth/internal/discovery"
	"plinth/internal/features"
)

// Version is the version of the Kubernetes API that this server implements; the suffix names the implementation.
const Version = "v1.37.1+plinth"

// BuiltFrom is the commit that the program was built from, with "(modified)" if files had changed; "unknown" if the
// program was built outside of a checkout, or by go run.
func BuiltFrom() string {
	v := version(features.Current)
	switch {
	case v.GitCommit == "":
		return "unknown"
	case v.GitTreeState == "dirty":
		return v.GitCommit + " (modified)"
	}
	return v.GitCommit
}

// version is the content of /version of a server that behaves like these releases.
func version(like features.Versions) discovery.Version {
	v := discovery.Version{Major: "1", Minor: "37", GitVersion: Version, GitTreeState: "clean"}
	v.EmulationMajor, v.EmulationMinor = strconv.Itoa(like.Emulated.Major), strconv.Itoa(like.Emulated.Minor)
	v.MinCompatibilityMajor = strconv.Itoa(like.Compatible.Major)
	v.MinCompatibilityMinor = strconv.Itoa(like.Compatible.Minor)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.GitCommit = s.Value
		case "vcs.time":
			v.BuildDate = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				v.GitTreeState = "dirty"
			}
		}
	}
	return v
}
