package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"plinth/conformance/internal/harness"
)

// Readers read at a fixed rate, so that a slow read does not delay the others.
const (
	readers   = 4
	readEvery = 4 * time.Millisecond
)

// readCommand is the first argument of a process that reads: Reading runs it.
const readCommand = "read"

// Took is how long reads took, in milliseconds.
type Took struct {
	N        int
	P50, P99 float64
}

// Reads starts a process that GETs objects of a server until it is stopped, which returns what that took. path has one
// verb for an index, which is chosen at random below n. The process is another copy of this program, whose main
// calls Reading: in the process of a load a read would wait for the goroutines of the load that it is to be
// compared with.
func Reads(s *harness.Server, path string, n int) (stop func() (Took, error)) {
	fail := func(err error) func() (Took, error) { return func() (Took, error) { return Took{}, err } }
	cmd, in, out, err := Copy(readCommand, s.URL, path, strconv.Itoa(n))
	if err != nil {
		return fail(err)
	}
	return func() (took Took, err error) {
		in.Close()
		err = json.NewDecoder(out).Decode(&took)
		return took, errors.Join(err, cmd.Wait())
	}
}

// Reading says whether the arguments of the program are those of a reader, and if so, reads until the input ends.
func Reading(args []string) (is bool, err error) {
	if len(args) != 5 || args[1] != readCommand {
		return false, nil
	}
	n, err := strconv.Atoi(args[4])
	if err != nil {
		return true, err
	}
	return true, read(args[2], args[3], n)
}

func read(url, path string, n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	var mu sync.Mutex
	var took []float64
	var failed error
	client := New(&harness.Server{URL: url}, readers)
	defer client.Close()
	for range readers {
		reading.Go(func() {
			ticker := time.NewTicker(readEvery)
			defer ticker.Stop()
			for ctx.Err() == nil {
				due := <-ticker.C
				_, err := client.Discard(context.Background(),
					Request{Method: http.MethodGet, Path: fmt.Sprintf(path, rand.IntN(n))})
				mu.Lock()
				failed = errors.Join(failed, err)
				took = append(took, float64(time.Since(due).Microseconds())/1000)
				mu.Unlock()
			}
		})
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	reading.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Took{N: len(took), P50: Quantile(took, 0.5), P99: Quantile(took, 0.99)})
}

// Quantile returns a quantile of values.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Memory is the memory of a process, in bytes: anonymous memory, pages of files, and the most that was resident since
// ResetPeak.
type Memory struct{ Anonymous, File, Peak int64 }

// MemoryOf returns the memory of the server's measured processes.
func MemoryOf(s *harness.Server) (Memory, error) {
	var total Memory
	for _, pid := range s.Measured() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return Memory{}, err
		}
		for key, sum := range map[string]*int64{
			"RssAnon:": &total.Anonymous, "RssFile:": &total.File, "VmHWM:": &total.Peak,
		} {
			_, after, ok := strings.Cut(string(text), "\n"+key)
			if !ok {
				return Memory{}, fmt.Errorf("the status of process %d has no %s", pid, key)
			}
			kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
			if err != nil {
				return Memory{}, err
			}
			*sum += kb << 10
		}
	}
	return total, nil
}

// ResetPeak makes the memory that is resident now the peak of the server's measured processes.
func ResetPeak(s *harness.Server) error {
	for _, pid := range s.Measured() {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return err
		}
	}
	return nil
}
