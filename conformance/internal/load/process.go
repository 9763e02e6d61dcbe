package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
)

// tick is how the kernel counts processor time, on every Linux there is.
const tick = 10 * time.Millisecond

// CPU is the processor time that the server's processes have used, in user and in kernel mode.
func CPU(s *harness.Server) (time.Duration, error) {
	var total time.Duration
	for _, pid := range s.Pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The name, in brackets, may hold anything; utime and stime are the 12th and 13th field after it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			n, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			total += time.Duration(n) * tick
		}
	}
	return total, nil
}

// RSS is the resident memory of the server's processes, in bytes.
func RSS(s *harness.Server) (int64, error) {
	var total int64
	for _, pid := range s.Pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, after, ok := strings.Cut(string(text), "VmRSS:")
		if !ok {
			return 0, fmt.Errorf("process %d has no resident memory", pid)
		}
		kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
		if err != nil {
			return 0, err
		}
		total += kb << 10
	}
	return total, nil
}
