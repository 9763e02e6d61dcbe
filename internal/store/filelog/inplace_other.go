//go:build !unix

package filelog

import "github.com/cockroachdb/pebble/v2/vfs"

// sameFile is always true: files that are open cannot be removed or replaced.
func sameFile(vfs.FileInfo, vfs.FileInfo) bool { return true }
