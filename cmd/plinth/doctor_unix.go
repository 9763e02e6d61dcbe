//go:build unix

package main

import "golang.org/x/sys/unix"

// openFiles is how many files a process may open: a Go program raises its limit to the hard one.
func openFiles() (uint64, bool) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return uint64(limit.Max), err == nil
}
