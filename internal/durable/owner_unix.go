//go:build unix

package durable

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of another one.
func keepOwner(path string, of fs.FileInfo) error {
	current, err := os.Stat(path)
	if err != nil {
		return err
	}
	mine, ok := current.Sys().(*syscall.Stat_t)
	old, known := of.Sys().(*syscall.Stat_t)
	if !ok || !known || mine.Uid == old.Uid && mine.Gid == old.Gid {
		return nil
	}
	return os.Chown(path, int(old.Uid), int(old.Gid))
}
