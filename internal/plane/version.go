package plane

import (
	"strconv"

	"plinth/internal/discovery"
	"plinth/internal/features"
	"plinth/internal/product"
)

// Version is the version of the Kubernetes API that a plane implements; the suffix names the implementation.
const Version = "v1.37.1+plinth"

// version is the content of /version of a plane that behaves like these releases.
func version(like features.Versions) discovery.Version {
	v := discovery.Version{Major: "1", Minor: "37", GitVersion: Version, GitTreeState: "clean"}
	v.EmulationMajor, v.EmulationMinor = strconv.Itoa(like.Emulated.Major), strconv.Itoa(like.Emulated.Minor)
	v.MinCompatibilityMajor = strconv.Itoa(like.Compatible.Major)
	v.MinCompatibilityMinor = strconv.Itoa(like.Compatible.Minor)
	built := product.Built()
	v.GitCommit, v.BuildDate = built.Hash, built.Date
	if built.Modified {
		v.GitTreeState = "dirty"
	}
	return v
}
