package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
)

func envtestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "envtest DIR",
		Short: "create in DIR the programs that KUBEBUILDER_ASSETS needs",
		Long: `Creates in DIR the programs that envtest expects in KUBEBUILDER_ASSETS: kube-apiserver and etcd, which are this
program, and kubectl. kubectl is taken from the directory of this program, else from the PATH, else built, if the
current directory is in a checkout.`,
		Example: "  plinth envtest bin/envtest\n  export KUBEBUILDER_ASSETS=$PWD/bin/envtest",
		Args:    arguments(1, "the directory to write to"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error { return envtest(args[0], c.OutOrStdout()) },
	}
}

// envtest creates the directory of programs that envtest starts.
func envtest(at string, out io.Writer) error {
	dir, err := filepath.Abs(at)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w; name a directory that can be made or written to", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{kubeAPIServer, etcd} {
		if err := install(self, filepath.Join(dir, executable(name))); err != nil {
			return err
		}
	}
	noKubectl := installKubectl(self, dir)
	fmt.Fprintf(out, "%s and %s are in %s.\n", kubeAPIServer, etcd, dir)
	if noKubectl != nil {
		fmt.Fprintf(out, "kubectl is missing there (%v); \"make kubectl\" builds one. "+
			"Only suites that run kubectl need it.\n", noKubectl)
	}
	_, err = fmt.Fprintf(out, "\n  export KUBEBUILDER_ASSETS=%s\n", dir)
	return err
}

// executable is the name of a program as a file.
func executable(program string) string {
	if runtime.GOOS == "windows" {
		return program + ".exe"
	}
	return program
}

// install puts a program at a path atomically, even while the old one is running. A hard link costs no space; where the
// file system refuses one the program is copied. Either way it still exists after `go run` has deleted the program that
// it built.
func install(program, at string) error {
	if present, err := os.Stat(at); err == nil {
		if current, err := os.Stat(program); err == nil && os.SameFile(present, current) {
			return nil
		}
		if !sameProgram(program, at) {
			return fmt.Errorf("%s is another program, which is not replaced; remove it, or choose another directory", at)
		}
	}
	next := at + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Link(program, next); err != nil {
		if err := copyFile(program, next); err != nil {
			return err
		}
	}
	return os.Rename(next, at)
}

// sameProgram says whether two files are builds of one program, of any version.
func sameProgram(a, b string) bool {
	one, err := buildinfo.ReadFile(a)
	if err != nil {
		return false
	}
	two, err := buildinfo.ReadFile(b)
	return err == nil && one.Path == two.Path && one.Main.Path == two.Main.Path
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// installKubectl finds a kubectl, or builds one in a checkout.
func installKubectl(self, dir string) error {
	kubectl := executable("kubectl")
	at := filepath.Join(dir, kubectl)
	if present, err := os.Lstat(at); err == nil && present.Mode().IsRegular() &&
		!sameProgram(filepath.Join(filepath.Dir(self), kubectl), at) {
		return nil // the user's
	}
	beside := filepath.Join(filepath.Dir(self), kubectl)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return install(beside, at)
	}
	if found, err := exec.LookPath("kubectl"); err == nil { // a symbolic link: it may depend on its own path
		if found, err = filepath.Abs(found); err != nil || found == at {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.Symlink(found, at)
	}
	if _, err := os.Stat(filepath.Join("tools", "kubectl", "main.go")); err != nil {
		return errors.New("none is beside this program or on the PATH")
	}
	build := exec.Command("go", "build", "-o", at, "./kubectl")
	build.Dir = "tools"
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building it: %w\n%s", err, text)
	}
	return nil
}
