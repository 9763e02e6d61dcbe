package main

import (
	"bytes"
	"embed"
	"io/fs"
	"slices"
	"strings"
	"text/template"
)

// What the release writes besides programs.
var (
	//go:embed files/linux
	packageFiles embed.FS
	//go:embed all:files/python files/npm files/plinth.rb files/owners.yaml all:files/chart files/action
	templates embed.FS
)

// facts are what templates may use.
type facts struct {
	Name, Summary, Description, Version, Kubernetes, Home, Files, Licence, OtherRegistries string

	Platforms []platformFacts
	Platform  platformFacts // of a file that is for one platform
	Systems   []system      // those that Homebrew knows
}

// system is a system with its platforms.
type system struct {
	Brew      string // its name in formulas
	Platforms []platformFacts
}

// platformFacts are the facts about one platform.
type platformFacts struct {
	OS, Arch, URL, SHA256, Archive, Program, NPMOS, NPMCPU, NPMName, Wheel string
}

func (r *release) facts() facts {
	f := facts{Name: name, Summary: summary, Description: description, Version: r.version, Kubernetes: r.kubernetes,
		Home: r.home, Files: r.files, Licence: r.licenceID(), OtherRegistries: otherRegistries}
	for _, p := range r.platforms {
		f.Platforms = append(f.Platforms, r.platformFacts(p))
	}
	for _, brew := range [][2]string{{"macos", "darwin"}, {"linux", "linux"}} {
		s := system{Brew: brew[0]}
		for _, p := range f.Platforms {
			if p.OS == brew[1] {
				s.Platforms = append(s.Platforms, p)
			}
		}
		if len(s.Platforms) > 0 {
			f.Systems = append(f.Systems, s)
		}
	}
	return f
}

func (r *release) platformFacts(p platform) platformFacts {
	archive := p.archive(name, r.version)
	return platformFacts{OS: p.os, Arch: p.arch, URL: r.url(archive), SHA256: r.sums[archive]["sha256"], Archive: archive,
		Program: p.exe(name), NPMOS: p.npmOS, NPMCPU: p.npmCPU, NPMName: npmName(p), Wheel: p.wheel}
}

// expand returns the files of a folder of templates, sorted. A file that ends in .tmpl is expanded with the facts.
// Templates have [[ and ]] for delimiters: Helm and GitHub's actions have the usual ones.
func expand(folder string, with facts) ([]entry, error) {
	var all []entry
	err := fs.WalkDir(templates, "files/"+folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := templates.ReadFile(path)
		if err != nil {
			return err
		}
		at, isTemplate := strings.CutSuffix(strings.TrimPrefix(strings.TrimPrefix(path, "files/"+folder), "/"), ".tmpl")
		if isTemplate || folder == path[len("files/"):] {
			t, err := template.New(path).Delims("[[", "]]").Option("missingkey=error").Parse(string(body))
			if err != nil {
				return err
			}
			var out bytes.Buffer
			if err := t.Execute(&out, with); err != nil {
				return err
			}
			body = out.Bytes()
		}
		mode := int64(0o644)
		if bytes.HasPrefix(body, []byte("#!")) {
			mode = 0o755
		}
		all = append(all, entry{name: at, mode: mode, body: body})
		return nil
	})
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, err
}

// expandFile is expand for one file.
func (r *release) expandFile(file string) ([]byte, error) {
	all, err := expand(file, r.facts())
	if err != nil {
		return nil, err
	}
	return all[0].body, nil
}
