package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Facts about the product, in all that describes it.
const (
	name        = "plinth"
	summary     = "Kubernetes API without a cluster"
	description = "Plinth is a Kubernetes-compatible API server in one program, for control planes, tests and edge devices. " +
		"It serves the built-in types, custom resources, watches, admission and server-side apply over its own durable store."
	maintainer = "The maintainers of Plinth"

	// otherRegistries is the name in PyPI and npm, where the short one belongs to others.
	otherRegistries = "plinth-server"
)

// The URL of a trial: no name that ends in .example is anybody's.
const trialHome = "https://plinth.example"

type options struct {
	source, out string
	home, files string
	trial       bool
	platforms   []string
	kubectl     string // a kubectl for all platforms, instead of those that are built: for tests
}

// release is what is built.
type release struct {
	source, out string
	home, files string // URLs: of the project, and of the directory with the files of this release
	version     string
	kubernetes  string // the version of the API, without "v"
	module      string // its path
	commit      string
	date        time.Time // of the commit, and of all files
	licence     *licence  // nil in a trial without one
	platforms   []platform

	kubectl  string                       // see options
	work     string                       // a directory for intermediate files
	programs map[platform]programs        // that were built
	sums     map[string]map[string]string // by the name of a file: by sha256 and sha512
}

// licence is the file LICENSE, and the name that its first line has in SPDX's list.
type licence struct {
	text []byte
	id   string
}

const noLicence = `no licence is chosen: there is no file LICENSE in %s.
A release without one may not be used by anybody. To add one, put its text in LICENSE, with a first line that names it as SPDX does:
  SPDX-License-Identifier: Apache-2.0
and commit it. To try what a release would be, without giving it away: make release UNLICENSED=1`

// prepare finds out what is to be built, and refuses what may not be given away, unless it is a trial.
func prepare(o options) (*release, error) {
	chosen, err := choose(o.platforms)
	if err != nil {
		return nil, err
	}
	source, err := filepath.Abs(o.source)
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return nil, err
	}
	r := &release{source: source, out: out, platforms: chosen, kubectl: o.kubectl, programs: map[platform]programs{},
		sums: map[string]map[string]string{}}
	text, err := os.ReadFile(filepath.Join(source, "internal", "product", "VERSION"))
	if err != nil {
		return nil, err
	}
	r.version = strings.TrimSpace(string(text))
	if r.licence, err = readLicence(source); err != nil {
		return nil, err
	}
	if err := r.readModule(); err != nil {
		return nil, err
	}
	if err := r.readCommit(o.trial); err != nil {
		return nil, err
	}
	r.home = strings.TrimSuffix(o.home, "/")
	if o.trial {
		r.home = cmp.Or(r.home, trialHome)
	} else if err := r.publishable(); err != nil {
		return nil, err
	}
	r.files = strings.TrimSuffix(cmp.Or(o.files, r.home+"/releases/download/v"+r.version), "/")
	return r, nil
}

// publishable says what is missing in a release that is to be given away.
func (r *release) publishable() error {
	if r.licence == nil {
		return fmt.Errorf(noLicence, r.source)
	}
	if r.home == "" {
		return errors.New("the descriptions need the URL of the project: make release HOMEPAGE=https://…")
	}
	changes, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.version) + ` \(\d{4}-\d{2}-\d{2}\)$`)
	if !heading.Match(changes) {
		return fmt.Errorf("CHANGELOG.md has no heading «## %s (YYYY-MM-DD)»", r.version)
	}
	return nil
}

// readCommit finds the commit of the checkout. Of one with changes only a trial is built.
func (r *release) readCommit(trial bool) error {
	commit, err := output(r.source, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return fmt.Errorf("the commit is not known: %w", err)
	}
	hash, seconds, _ := strings.Cut(commit, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.commit, r.date = hash, time.Unix(at, 0).UTC()
	changed, err := output(r.source, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		if !trial {
			return fmt.Errorf("files differ from the commit:\n%s", changed)
		}
		r.commit += "+changes"
	}
	return nil
}

func readLicence(source string) (*licence, error) {
	text, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	id, found := bytes.CutPrefix(bytes.TrimSpace(first), []byte("SPDX-License-Identifier: "))
	if !found {
		return nil, errors.New("the first line of LICENSE is not «SPDX-License-Identifier: » and a name from SPDX's list")
	}
	return &licence{text, string(id)}, nil
}

// licenceID is the name of the licence in descriptions.
func (r *release) licenceID() string {
	if r.licence == nil {
		return "LicenseRef-none"
	}
	return r.licence.id
}

// The module's path, and the release of Kubernetes, v0.N.P for 1.N.P, in go.mod.
var (
	modulePath = regexp.MustCompile(`(?m)^module (\S+)$`)
	required   = regexp.MustCompile(`(?m)^\s*k8s\.io/api v0\.(\d+\.\d+)$`)
)

// readModule reads what go.mod says about the product.
func (r *release) readModule() error {
	file := filepath.Join(r.source, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	path, version := modulePath.FindSubmatch(text), required.FindSubmatch(text)
	if path == nil || version == nil {
		return fmt.Errorf("%s names no module, or requires no k8s.io/api", file)
	}
	r.module, r.kubernetes = string(path[1]), "1."+string(version[1])
	return nil
}

// output runs a program in a directory and returns what it prints.
func output(dir, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, exit.Stderr)
	}
	return strings.TrimSpace(string(text)), err
}

// build writes all files of the release, in the order in which they need each other.
func (r *release) build() error {
	if err := clear(r.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r.work = work
	for _, p := range r.platforms {
		if err := r.compile(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, write := range []func(platform) error{
			r.writeArchives, r.writeSBOMs, r.writePackages, r.writeEnvtest, r.writeWheel, r.writeNPM,
		} {
			if err := write(p); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	for _, write := range []func() error{
		r.writeImage, r.writeEnvtestIndex, r.writeMainNPM, r.writeFormula, r.writeKrew, r.writeChart, r.writeAction,
		r.writeSums,
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// clear makes an empty directory. It removes what is there only if a release has written it.
func clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mark := filepath.Join(dir, markFile)
	if len(entries) > 0 {
		if _, err := os.Stat(mark); err != nil {
			return fmt.Errorf("%s has other files than those of a release; -out names another directory", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(mark, []byte("What is here was made by make release, which removes it the next time.\n"), 0o644)
}

// markFile is in each directory that a release has written, and is no part of the release.
const markFile = ".release"
