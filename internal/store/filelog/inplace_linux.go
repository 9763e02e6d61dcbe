package filelog

import (
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// names implements identifier by a statx that asks for the number of the file alone. A stat would ask for its times,
// too; then Linux (from 6.13 on, multigrain timestamps) gives the next write a time of its own, and the sync behind
// that has to write the inode, and takes twice as long.
func (diskFS) names(path string, file vfs.FileInfo) (bool, error) {
	before, numbered := file.Sys().(*syscall.Stat_t)
	var now unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO, &now)
	for err == unix.EINTR {
		err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO, &now)
	}
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return !numbered || now.Ino == before.Ino && unix.Mkdev(now.Dev_major, now.Dev_minor) == before.Dev, nil
}
