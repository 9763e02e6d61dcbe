package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl gets the arguments as they are and the kubeconfig of this directory, and its exit code is that of the
// program.
//
// SPEC: RUN-10
func TestKubectl(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\necho \"$KUBECONFIG: $*\"\n[ \"$1\" = get ] || exit 7\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+"/bin:/usr/bin")
	t.Setenv("KUBECONFIG", "")
	t.Chdir(t.TempDir())
	own := filepath.Join("plinth-data", "kubeconfig")
	if err := os.Mkdir("plinth-data", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, own, "")
	if out, err := plinth("kubectl", "get", "pods", "-A", "--help"); err != nil || out != own+": get pods -A --help\n" {
		t.Errorf("%v, %q", err, out)
	}
	t.Setenv("KUBECONFIG", "mine")
	if out, err := plinth("kubectl", "fail"); codeOf(err) != 7 || out != "mine: fail\n" {
		t.Errorf("%v, %q", err, out)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := plinth("kubectl", "get"); err == nil || !strings.Contains(err.Error(), "make kubectl") {
		t.Errorf("without kubectl: %v", err)
	}
}
