//go:build !linux

package main

// unmapProgram does nothing: only Linux has a call for it that is safe.
func unmapProgram() error { return nil }
