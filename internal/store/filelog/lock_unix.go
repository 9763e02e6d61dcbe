//go:build unix

package filelog

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lock implements vfs.FS: it locks the directory of the file, and the file. A lock on the file is worth nothing once
// that is removed, since the next process makes another file and locks that. The directory cannot be removed as long as
// the log is in it; if it is renamed, what has its name then is another log.
//
// The file is locked for two cases in which the directory is not: an older release locks the file alone, and NFS locks
// only what is open for writing.
func (d diskFS) Lock(name string) (io.Closer, error) {
	dir, err := os.Open(d.PathDir(name))
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EBADF || err == unix.ENOTSUP || err == unix.ENOSYS {
		err = nil
	}
	var file io.Closer
	if err == nil {
		file, err = d.lockFile(name)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return locks{dir, file}, nil
}

// lockFile locks the file, which it creates unless it exists. The vfs would create it with the mode 0644.
func (d diskFS) lockFile(name string) (io.Closer, error) {
	made, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := made.Close(); err != nil {
		return nil, err
	}
	return d.FS.Lock(name)
}

// locks are released together.
type locks [2]io.Closer

// Close implements io.Closer.
func (l locks) Close() error { return errors.Join(l[0].Close(), l[1].Close()) }

// share locks a directory for reading, without making a file in it: no process has it open for writing meanwhile.
func share(dir string) (io.Closer, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(opened.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil && err != unix.EBADF && err != unix.ENOTSUP && err != unix.ENOSYS {
		opened.Close()
		return nil, err
	}
	return opened, nil
}
