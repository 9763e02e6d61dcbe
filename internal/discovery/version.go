package discovery

import (
	"cmp"
	"runtime"

	"plinth/object"
)

// Version is the content of /version. Clients read Major and Minor as the version of the Kubernetes API, and parse
// GitVersion as a semantic version.
type Version struct {
	Major, Minor string // "1", "37"
	// EmulationMajor and EmulationMinor are the version that this server behaves like; "": its own.
	EmulationMajor, EmulationMinor string
	// MinCompatibilityMajor and MinCompatibilityMinor are the oldest version that this server is compatible with.
	MinCompatibilityMajor, MinCompatibilityMinor string
	GitVersion                                   string // "v1.37.1+plinth"
	GitCommit, GitTreeState, BuildDate           string
}

// short is the version in OpenAPI documents: "1.37".
func (v Version) short() string {
	return cmp.Or(v.EmulationMajor, v.Major) + "." + cmp.Or(v.EmulationMinor, v.Minor)
}

func (v Version) value() object.Value {
	members := []object.Member{
		{Key: "major", Value: object.StringOf(v.Major)},
		{Key: "minor", Value: object.StringOf(v.Minor)},
		{Key: "emulationMajor", Value: object.StringOf(cmp.Or(v.EmulationMajor, v.Major))},
		{Key: "emulationMinor", Value: object.StringOf(cmp.Or(v.EmulationMinor, v.Minor))},
		{Key: "gitVersion", Value: object.StringOf(v.GitVersion)},
		{Key: "gitCommit", Value: object.StringOf(v.GitCommit)},
		{Key: "gitTreeState", Value: object.StringOf(v.GitTreeState)},
		{Key: "buildDate", Value: object.StringOf(v.BuildDate)},
		{Key: "goVersion", Value: object.StringOf(runtime.Version())},
		{Key: "compiler", Value: object.StringOf(runtime.Compiler)},
		{Key: "platform", Value: object.StringOf(runtime.GOOS + "/" + runtime.GOARCH)},
	}
	if v.MinCompatibilityMajor != "" {
		members = append(members,
			object.Member{Key: "minCompatibilityMajor", Value: object.StringOf(v.MinCompatibilityMajor)},
			object.Member{Key: "minCompatibilityMinor", Value: object.StringOf(v.MinCompatibilityMinor)})
	}
	return object.MapOf(members...)
}

func (d *Documents) versionDocument(accept string) (*Document, error) {
	if err := literal(accept, mediaJSON); err != nil {
		return nil, err
	}
	return &Document{MediaType: mediaJSON, Body: d.versionJSON}, nil
}
