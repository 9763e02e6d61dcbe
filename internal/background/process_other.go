//go:build !unix

package background

import (
	"errors"
	"os"
	"os/exec"
)

var errUnix = errors.New(
	"servers in the background need Linux, macOS or another Unix; run plinth serve in a terminal of its own")

func takeLock(string) (*os.File, error) { return nil, errUnix }

func isLocked(string) (bool, error) { return false, errUnix }

func detach(*exec.Cmd) {}

func terminate(process *os.Process) error { return process.Kill() }
