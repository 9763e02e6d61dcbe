//go:build !linux && !darwin

package storage

// FreeBytes is not known here.
func FreeBytes(string) (uint64, bool) { return 0, false }
