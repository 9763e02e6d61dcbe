//go:build unix

package filelog

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"plinth/internal/durable"
)

// Lock implements vfs.FS: it locks the directory of the file. A lock on the file itself is worth nothing once that is
// removed, since the next process makes another file and locks that. The directory cannot be removed as long as the log
// is in it; if it is renamed, what has its name then is another log.
func (diskFS) Lock(name string) (io.Closer, error) {
	dir, err := os.Open(durable.FS.PathDir(name))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}
