package load

import (
	"context"
	"fmt"
	"net/http"
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

// Held is how many bytes a Plinth's objects and stacks take when all garbage has been collected. Unlike the resident memory
// it does not depend on when the collector last ran.
func Held(ctx context.Context, c *Client) (int64, error) {
	for range 2 { // what lies in a sync.Pool outlives one collection
		if _, err := c.Discard(ctx, Request{Method: http.MethodGet, Path: "/debug/pprof/heap?gc=1", Accept: "*/*"}); err != nil {
			return 0, err
		}
	}
	text, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/metrics", Accept: "*/*"})
	if err != nil {
		return 0, err
	}
	var total float64
	for _, name := range []string{"go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes"} {
		_, after, ok := strings.Cut(string(text), "\n"+name+" ")
		if !ok {
			return 0, fmt.Errorf("there is no metric %s", name)
		}
		value, _, _ := strings.Cut(after, "\n")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return int64(total), nil
}
