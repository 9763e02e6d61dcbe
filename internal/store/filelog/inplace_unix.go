//go:build unix

package filelog

import (
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sameFile says whether two names are of one file, as os.SameFile does for the types of package os. File systems that
// are no operating system's do not number their files: there it is always true.
func sameFile(a, b vfs.FileInfo) bool {
	x, numbered := a.Sys().(*syscall.Stat_t)
	y, too := b.Sys().(*syscall.Stat_t)
	return !numbered || !too || x.Ino == y.Ino && x.Dev == y.Dev
}
