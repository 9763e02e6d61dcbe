//go:build unix

package background

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// takeLock opens and locks a file; ErrRuns is returned if another process has it locked. It is tried several times: who
// asks whether it is locked has it for an instant.
func takeLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for range 10 {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		err = ErrRuns
		time.Sleep(pollPeriod)
	}
	file.Close()
	return nil, err
}

// isLocked says whether a process has the file locked. It asks with a shared lock, so that two that ask do not take
// each other for a server.
func isLocked(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// detach makes a program one that no terminal ends.
func detach(program *exec.Cmd) { program.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func terminate(process *os.Process) error { return process.Signal(syscall.SIGTERM) }
