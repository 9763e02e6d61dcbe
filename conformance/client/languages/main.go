// Command languages reads from a server with the clients of other languages: lists in chunks, watches that resume,
// informers. `make languages` runs it against Plinth; with -reference it runs against the reference, to prove the
// scripts. Against Plinth it also runs the examples of docs/examples, which start a test server themselves.
//
// The clients are fetched by name into a separate folder: @kubernetes/client-node by npm, python3-kubernetes and its
// dependencies by apt, unpacked without being installed. Node.js, npm, a Debian and its python3 are required.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"plinth/conformance/internal/harness"
)

//go:embed reading.py
var python []byte

//go:embed reading.mjs
var javascript []byte

// debianPython is the Python for which Debian's packages are.
const debianPython = "/usr/bin/python3"

// nodeClient is the package of the JavaScript client, and debianClient that of the Python one.
const (
	nodeClient   = "@kubernetes/client-node@1.4.0" // of which version 2 needs Node.js 22
	debianClient = "python3-kubernetes"
)

func main() {
	reference := flag.Bool("reference", false, "read from the reference instead")
	flag.Parse()
	if err := run(*reference); err != nil {
		fmt.Fprintln(os.Stderr, "languages:", err)
		os.Exit(1)
	}
}

func run(reference bool) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache = filepath.Join(cache, "plinth-languages")
	packages, err := fetchPython(filepath.Join(cache, "python"))
	if err != nil {
		return fmt.Errorf("the Python client: %w", err)
	}
	if err := fetchNode(filepath.Join(cache, "node")); err != nil {
		return fmt.Errorf("the JavaScript client: %w", err)
	}
	dir, err := os.MkdirTemp("", "languages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer harness.Cleanup()
	kind := harness.Plinth
	if reference {
		kind = harness.Reference
	}
	server, err := harness.Start(harness.Options{Kind: kind, Dir: dir})
	if err != nil {
		return err
	}
	defer server.Kill()
	// Node.js looks for the modules of a script beside it.
	if err := script(filepath.Join(cache, "node", "reading.mjs"), javascript, server.Kubeconfig, "node"); err != nil {
		return err
	}
	err = script(filepath.Join(cache, "python", "reading.py"), python, server.Kubeconfig, debianPython,
		"PYTHONPATH="+packages,
		"PYTHONWARNINGS=ignore") // no known authority has signed the reference's certificate
	if err != nil || reference {
		return err
	}
	return runExamples(filepath.Join(cache, "node", "examples"), packages)
}

// examples is the folder of the examples, and the number of tests that each language has there: a runner that finds
// none is content.
const (
	examples        = "../docs/examples"
	pythonTests     = 4
	javascriptTests = 4
)

// runExamples runs the examples as their readers would: those with the standard library alone, and those with a client.
// dir is a folder below the one where the JavaScript client is installed, and gets a copy.
func runExamples(dir, packages string) error {
	program, err := harness.Program()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(examples)); err != nil {
		return err
	}
	plinth := "PLINTH=" + program
	for _, r := range []struct {
		folder, passed string
		env            []string
		command        []string
	}{
		{"javascript", fmt.Sprintf("# pass %d\n", javascriptTests), []string{plinth},
			[]string{"node", "--test", "--test-reporter=tap", "."}},
		{"python", fmt.Sprintf("Ran %d tests", pythonTests), []string{plinth, "PYTHONPATH=" + packages},
			[]string{debianPython, "-m", "unittest", "discover", "-v"}},
	} {
		cmd := exec.Command(r.command[0], r.command[1:]...)
		cmd.Dir, cmd.Env = filepath.Join(dir, r.folder), append(os.Environ(), r.env...)
		out, err := cmd.CombinedOutput()
		if err == nil && !strings.Contains(string(out), r.passed) {
			err = fmt.Errorf("the output has no %q", r.passed)
		}
		if err != nil {
			return fmt.Errorf("the examples in %s: %w\n%s", r.folder, err, out)
		}
		fmt.Printf("%s: the examples pass\n", r.folder)
	}
	return nil
}

// script runs a script against the server of a kubeconfig.
func script(file string, text []byte, kubeconfig, interpreter string, env ...string) error {
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	return command(filepath.Dir(file), env, interpreter, file, kubeconfig)
}

// command runs a program in a folder, and shows its output.
func command(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}

// fetchNode installs the JavaScript client, unless it is installed.
func fetchNode(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@kubernetes", "client-node")); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return command(dir, nil, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--silent", nodeClient)
}

// fetchPython unpacks the Python client and its dependencies, unless that has been done, and returns the folder of its
// modules.
func fetchPython(dir string) (packages string, err error) {
	packages = filepath.Join(dir, "root", "usr", "lib", "python3", "dist-packages")
	if _, err := os.Stat(filepath.Join(packages, "kubernetes")); err == nil {
		return packages, nil
	}
	names, err := pythonPackages()
	if err != nil {
		return "", err
	}
	debs := filepath.Join(dir, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return "", err
	}
	if err := command(debs, nil, "apt-get", append([]string{"download", "-qq"}, names...)...); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if err := command(debs, nil, "dpkg-deb", "-x", file, filepath.Join(dir, "root")); err != nil {
			return "", err
		}
	}
	return packages, nil
}

// pythonPackages names the client's package and those of Python's that it depends on.
func pythonPackages() ([]string, error) {
	out, err := exec.Command("apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
		"--no-breaks",
		"--no-replaces", "--no-enhances", debianClient).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache depends %s: %w (apt-get update first?)", debianClient, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(line, "python3-") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("apt knows no package %s (apt-get update first?)", debianClient)
	}
	return names, nil
}
