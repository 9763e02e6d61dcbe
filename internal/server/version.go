package server

import (
	"runtime/debug"

	"plinth/internal/discovery"
)

// Version is the version of the Kubernetes API that this server implements; the suffix names the implementation.
const Version = "v1.37.1+plinth"

// version is the content of /version.
func version() discovery.Version {
	v := discovery.Version{
		Major: "1", Minor: "37", GitVersion: Version,
		MinCompatibilityMajor: "1", MinCompatibilityMinor: "36",
		GitTreeState: "clean",
	}
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
