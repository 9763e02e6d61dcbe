//go:build unix

package background

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Redirect has the outputs of this program lead to a file, which is created if it is not there.
func Redirect(file string) error {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	return errors.Join(unix.Dup2(int(log.Fd()), 1), unix.Dup2(int(log.Fd()), 2))
}
