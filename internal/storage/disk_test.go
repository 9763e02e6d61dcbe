package storage

import (
	"context"
	"runtime"
	"testing"
)

// A full disk fails a check of its own, which is not among those that a restart helps against.
//
// SPEC: RUN-3
func TestFullDiskIsUnhealthy(t *testing.T) {
	for left, healthy := range map[uint64]bool{0: false, LeastFree - 1: false, LeastFree: true} {
		check := diskCheck("data", func(string) (uint64, bool) { return left, true })
		if err := check.Run(context.Background()); (err == nil) != healthy {
			t.Errorf("%d bytes are free: %v", left, err)
		}
		if !check.NotLive {
			t.Error("it is among the checks of /livez")
		}
	}
	if _, known := FreeBytes(t.TempDir()); known != (runtime.GOOS == "linux" || runtime.GOOS == "darwin") {
		t.Errorf("the room on this disk: %t", known)
	}
}
