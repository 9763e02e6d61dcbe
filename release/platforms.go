package main

import (
	"fmt"
	"slices"
	"strings"
)

// platform is a system and a processor that programs are built for, with the names that others have for them.
type platform struct {
	os, arch string // as Go names them

	deb, rpm string // the architecture in packages; "": there is none
	image    bool   // it is in the image
	npmOS    string // process.platform of Node.js
	npmCPU   string // process.arch of Node.js
	wheel    string // the platform tag of Python
	zip      bool   // the archive is a .zip, not a .tar.gz
}

// platforms is the table: whatever depends on the platform is derived from a row.
var platforms = []platform{
	{os: "linux", arch: "amd64", deb: "amd64", rpm: "x86_64", image: true, npmOS: "linux", npmCPU: "x64",
		wheel: "manylinux2014_x86_64.musllinux_1_1_x86_64"}, // a static program needs neither C library
	{os: "linux", arch: "arm64", deb: "arm64", rpm: "aarch64", image: true, npmOS: "linux", npmCPU: "arm64",
		wheel: "manylinux2014_aarch64.musllinux_1_1_aarch64"},
	{os: "darwin", arch: "amd64", npmOS: "darwin", npmCPU: "x64", wheel: "macosx_12_0_x86_64"},
	{os: "darwin", arch: "arm64", npmOS: "darwin", npmCPU: "arm64", wheel: "macosx_12_0_arm64"},
	{os: "windows", arch: "amd64", npmOS: "win32", npmCPU: "x64", wheel: "win_amd64", zip: true},
	{os: "windows", arch: "arm64", npmOS: "win32", npmCPU: "arm64", wheel: "win_arm64", zip: true},
}

// String is the platform as the go command names it.
func (p platform) String() string { return p.os + "/" + p.arch }

// exe is the name of a program on the platform.
func (p platform) exe(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// archive is the name of the archive of a program.
func (p platform) archive(program, version string) string {
	end := ".tar.gz"
	if p.zip {
		end = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", program, version, p.os, p.arch, end)
}

// choose returns the platforms with these names, or all.
func choose(names []string) ([]platform, error) {
	if len(names) == 0 {
		return platforms, nil
	}
	var chosen []platform
	for _, n := range names {
		i := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no release for %q; there are %s", n,
				strings.Trim(fmt.Sprint(platforms), "[]"))
		}
		chosen = append(chosen, platforms[i])
	}
	return chosen, nil
}
