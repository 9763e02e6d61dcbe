package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// shells are those for which the program prints completion, with the place of it.
var shells = map[string]string{
	"bash": "/usr/share/bash-completion/completions/plinth",
	"zsh":  "/usr/share/zsh/vendor-completions/_plinth",
	"fish": "/usr/share/fish/vendor_completions.d/plinth.fish",
}

// writePackages writes the deb and the rpm of a platform.
func (r *release) writePackages(p platform) error {
	for kind, arch := range map[string]string{"deb": p.deb, "rpm": p.rpm} {
		if arch == "" {
			continue
		}
		if err := r.writePackage(p, kind); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (r *release) writePackage(p platform, kind string) error {
	staged, err := r.stage(p)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: name, Arch: p.arch, Platform: p.os, Version: r.version, Section: "net", Priority: "optional",
		Maintainer: maintainer, Vendor: maintainer, Description: summary + "\n" + description, Homepage: r.home,
		License: r.licenceID(), MTime: r.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Umask:    0o022,
			Contents: staged,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(r.work, "files", kind+"-postinstall.sh"),
				PreRemove:   filepath.Join(r.work, "files", kind+"-preremove.sh"),
				PostRemove:  filepath.Join(r.work, "files", kind+"-postremove.sh"),
			},
			RPM: nfpm.RPM{BuildHost: name, Summary: summary, Group: "System Environment/Daemons"},
		},
	})
	if kind == "deb" {
		info.Recommends = []string{"systemd"}
	}
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.put(packager.ConventionalFileName(info), out.Bytes())
}

// stage writes the files of packages beside each other, and says where each is installed.
func (r *release) stage(p platform) (nfpmfiles.Contents, error) {
	dir := filepath.Join(r.work, "files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var all nfpmfiles.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		all = append(all, &nfpmfiles.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}})
	}
	entries, err := packageFiles.ReadDir("files/linux")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		body, err := packageFiles.ReadFile("files/linux/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), body, 0o644); err != nil {
			return nil, err
		}
	}
	add(r.programs[p].plinth, "/usr/bin/plinth", nfpmfiles.TypeFile, 0o755)
	add(filepath.Join(dir, "plinth.service"), "/usr/lib/systemd/system/plinth.service", nfpmfiles.TypeFile, 0o644)
	add(filepath.Join(dir, "plinth.sysusers"), "/usr/lib/sysusers.d/plinth.conf", nfpmfiles.TypeFile, 0o644)
	add(filepath.Join(dir, "plinth.default"), "/etc/default/plinth", nfpmfiles.TypeConfigNoReplace, 0o644)
	documents, err := r.documents()
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if d.name == "LICENSE" {
			d.name = "copyright"
		}
		if err := os.WriteFile(filepath.Join(dir, d.name), d.body, 0o644); err != nil {
			return nil, err
		}
		add(filepath.Join(dir, d.name), "/usr/share/doc/plinth/"+d.name, nfpmfiles.TypeFile, 0o644)
	}
	for shell, destination := range shells {
		body, err := r.completion(shell)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, shell), body, 0o644); err != nil {
			return nil, err
		}
		add(filepath.Join(dir, shell), destination, nfpmfiles.TypeFile, 0o644)
	}
	return all, nil
}

// completion is what the program prints for a shell. It is run on this machine, so a program for it is built.
func (r *release) completion(shell string) ([]byte, error) {
	here := filepath.Join(r.work, "here", "plinth")
	if _, err := os.Stat(here); err != nil {
		own := platform{os: runtime.GOOS, arch: runtime.GOARCH}
		for p, built := range r.programs {
			if p.String() == own.String() {
				here = built.plinth
			}
		}
		if _, err := os.Stat(here); err != nil {
			if err := r.goBuild(own, r.source, here, "./cmd/plinth", ""); err != nil {
				return nil, err
			}
		}
	}
	return exec.Command(here, "completion", shell).Output()
}
