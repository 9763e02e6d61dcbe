package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"plinth/conformance/internal/harness"
)

// Copy starts another process of this program, with arguments, whose errors go to where those of this one go. It ends
// when in is closed, if it reads its standard input until then, and so at the latest when this one ends.
func Copy(args ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// CPU is the processor time that the server's measured processes have used, in user and in kernel mode.
func CPU(s *harness.Server) (time.Duration, error) {
	var total time.Duration
	for _, pid := range s.Measured() {
		used, err := CPUOf(pid)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// CPUOf is the processor time that a process has used, in user and in kernel mode.
func CPUOf(pid int) (time.Duration, error) {
	// The clock of the processor time of another process (clock_getcpuclockid(3)). /proc has the same figure in steps of
	// 10 ms.
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &used); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// RSS is the resident memory of the server's measured processes, in bytes.
func RSS(s *harness.Server) (int64, error) {
	var total int64
	for _, pid := range s.Measured() {
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

// Held returns the size of Plinth's live heap and stacks, in bytes, after a garbage collection. Unlike the resident
// memory it does not depend on when the collector last ran.
func Held(ctx context.Context, c *Client) (int64, error) {
	for range 2 { // objects in a sync.Pool survive one collection
		if _, err := c.Discard(ctx, Request{Method: http.MethodGet, Path: "/debug/pprof/heap?gc=1",
			Accept: "*/*"}); err != nil {
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
