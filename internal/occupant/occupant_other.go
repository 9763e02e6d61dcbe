//go:build !linux

package occupant

// OfPort returns the process that listens at a TCP port.
func OfPort(int) (Process, bool) { return Process{}, false }

// OfLock returns the process that has locked a file or a directory by flock.
func OfLock(string) (Process, bool) { return Process{}, false }
