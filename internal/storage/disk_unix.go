//go:build linux || darwin

package storage

import "golang.org/x/sys/unix"

// FreeBytes is the room for files of this user on the disk of a directory.
func FreeBytes(dir string) (uint64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
