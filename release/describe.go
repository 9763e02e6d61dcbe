package main

import (
	"os"
	"path/filepath"
	"strings"
)

// writeFormula writes the formula of Homebrew.
func (r *release) writeFormula() error {
	body, err := r.expandFile("plinth.rb")
	if err != nil {
		return err
	}
	return r.put("homebrew/plinth.rb", body)
}

// writeKrew writes the manifest by which krew installs `kubectl owners`.
func (r *release) writeKrew() error {
	body, err := r.expandFile("owners.yaml")
	if err != nil {
		return err
	}
	return r.put("krew/owners.yaml", body)
}

// writeAction writes the action as a folder, which is the content of a repository of its own.
func (r *release) writeAction() error {
	all, err := expand("action", r.facts())
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := r.put("action/"+e.name, e.body); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(r.out, "action", filepath.FromSlash(e.name)), os.FileMode(e.mode)); err != nil {
			return err
		}
	}
	return nil
}

// writeChart writes the chart of Helm as the package that a repository of charts has.
func (r *release) writeChart() error {
	all, err := expand("chart", r.facts())
	if err != nil {
		return err
	}
	for i := range all {
		all[i].name = name + "/" + all[i].name
	}
	body, err := tarGz(r.date, all)
	if err != nil {
		return err
	}
	return r.put(name+"-"+r.version+".tgz", body)
}

// writeWheel writes the wheel of a platform: the helper for tests, the program, and what Python's packaging requires.
func (r *release) writeWheel(p platform) error {
	f := r.facts()
	f.Platform = r.platformFacts(p)
	all, err := expand("python", f)
	if err != nil {
		return err
	}
	const helper = "docs/examples/python/plinth_server.py"
	body, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(helper)))
	if err != nil {
		return err
	}
	module := strings.ReplaceAll(otherRegistries, "-", "_")
	plinth, err := program(module+"/bin/"+p.exe(name), r.programs[p].plinth)
	if err != nil {
		return err
	}
	all = append(all, text(module+"/server.py", body), plinth)
	info := module + "-" + r.version + ".dist-info/"
	for i := range all {
		all[i].name = strings.Replace(all[i].name, "DIST-INFO/", info, 1)
	}
	if r.licence != nil {
		all = append(all, text(info+"licenses/LICENSE", r.licence.text))
	}
	all = append(all, record(info+"RECORD", all))
	wheel, err := zipOf(r.date, all)
	if err != nil {
		return err
	}
	return r.put(module+"-"+r.version+"-py3-none-"+p.wheel+".whl", wheel)
}

// npmName is the name of the package that has the program of a platform.
func npmName(p platform) string { return otherRegistries + "-" + p.npmOS + "-" + p.npmCPU }

// writeNPM writes the package that has the program of a platform. npm installs the one for the machine, as an optional
// dependency of the main package.
func (r *release) writeNPM(p platform) error {
	f := r.facts()
	f.Platform = r.platformFacts(p)
	all, err := expand("npm/platform", f)
	if err != nil {
		return err
	}
	plinth, err := program("bin/"+p.exe(name), r.programs[p].plinth)
	if err != nil {
		return err
	}
	return r.putNPM(npmName(p), append(all, plinth))
}

// writeMainNPM writes the package that users name: the helper for tests, and what finds and starts the program.
func (r *release) writeMainNPM() error {
	all, err := expand("npm/main", r.facts())
	if err != nil {
		return err
	}
	const helper = "docs/examples/javascript/plinth-server.mjs"
	body, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(helper)))
	if err != nil {
		return err
	}
	return r.putNPM(otherRegistries, append(all, text("server.mjs", body)))
}

// putNPM writes a package as `npm pack` does.
func (r *release) putNPM(pkg string, all []entry) error {
	if r.licence != nil {
		all = append(all, text("LICENSE", r.licence.text))
	}
	for i := range all {
		all[i].name = "package/" + all[i].name
	}
	body, err := tarGz(r.date, all)
	if err != nil {
		return err
	}
	return r.put("npm/"+pkg+"-"+r.version+".tgz", body)
}
