package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// kubectlCommand is `plinth kubectl`: the real one, which is a program of its own, with the kubeconfig of a server that
// was started here.
func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl ...",
		Short: "run kubectl on the server of this directory",
		Long: `Runs the kubectl that is beside this program, else the one on the PATH, with all arguments as they are. Without
KUBECONFIG it uses plinth-data/kubeconfig, if that is in the current directory.`,
		Example:            "  plinth kubectl get namespaces",
		DisableFlagParsing: true, // they are kubectl's
		RunE: func(c *cobra.Command, args []string) error {
			program, err := findKubectl()
			if err != nil {
				return err
			}
			run := exec.Command(program, args...)
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, c.OutOrStdout(), os.Stderr
			if own := filepath.Join("plinth-data", "kubeconfig"); os.Getenv("KUBECONFIG") == "" && exists(own) {
				run.Env = append(os.Environ(), "KUBECONFIG="+own)
			}
			var exit *exec.ExitError
			if err := run.Run(); errors.As(err, &exit) {
				return &exitError{code: max(1, exit.ExitCode())} // kubectl has said why; -1: it was ended by a signal
			} else if err != nil {
				return fmt.Errorf("kubectl cannot be run: %w", err)
			}
			return nil
		},
	}
}

// findKubectl finds the one beside this program, which has its version, or the one on the PATH.
func findKubectl() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "kubectl")
	if ending := filepath.Ext(self); ending == ".exe" {
		beside += ending
	}
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return beside, nil
	}
	found, err := exec.LookPath("kubectl")
	if err != nil {
		return "", fmt.Errorf(
			"there is no kubectl beside %s or on the PATH; install one, or build it in a checkout by make kubectl", self)
	}
	return found, nil
}
