package storetest

import (
	"syscall"
	"time"
)

// ProcessorTime is that of this process so far, or 0 if the system does not tell: on a machine that others use, too, it
// says more than the clock.
func ProcessorTime() time.Duration {
	var created, exited, kernel, user syscall.Filetime
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		return 0
	}
	span := func(t syscall.Filetime) time.Duration { // of 100 ns each
		return time.Duration(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) * 100
	}
	return span(kernel) + span(user)
}
