//go:build unix

package storetest

import (
	"syscall"
	"time"
)

// ProcessorTime is that of this process so far, or 0 if the system does not tell: on a machine that others use, too, it
// says more than the clock.
func ProcessorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
