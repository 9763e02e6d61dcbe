//go:build unix

package datadir

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"plinth/internal/durable"
)

// lock locks the directory for the time of a start. The lock ends with the process.
func lock(ctx context.Context, path string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		dir, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK { // else a file system without such locks, or the lock
			if same(dir, path) {
				return func() { dir.Close() }, nil
			}
			// A start that failed has removed the directory that it made.
			if err := errors.Join(dir.Close(), durable.MkdirAll(durable.FS, path)); err != nil {
				return nil, err
			}
			continue
		}
		dir.Close()
		select {
		case <-time.After(lockPeriod):
		case <-ctx.Done():
			return nil, errors.New("another server is starting in it")
		}
	}
}

func same(dir *os.File, path string) bool {
	mine, err := dir.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(mine, now)
}
