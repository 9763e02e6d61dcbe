package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// plainPiece is how much a plain server writes at once: as much as Plinth does.
const plainPiece = 64 << 10

// servePlain answers each request with as many bytes from memory, until standard input ends. It is what Go's HTTP/2 and
// TLS, and the kernel, take for an answer of this length in pieces of this size.
func servePlain(size int) error {
	body := make([]byte, size)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for rest := body; len(rest) > 0; {
			n, err := w.Write(rest[:min(plainPiece, len(rest))])
			if err != nil {
				return
			}
			rest = rest[n:]
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	fmt.Println(server.URL)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// plain is the processor time that a plain server takes for n answers of this size, to the client that measures the
// others.
func plain(ctx context.Context, size int64, n int) (time.Duration, error) {
	cmd, end, out, err := load.Copy("-send", fmt.Sprint(size))
	if err != nil {
		return 0, err
	}
	defer func() {
		end.Close()
		_ = cmd.Wait()
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("a plain server: %w", err)
	}
	client := load.New(&harness.Server{URL: strings.TrimSpace(url)}, 1)
	defer client.Close()
	var before time.Duration
	for i := range n + 2 { // two warm up
		if i == 2 {
			if before, err = load.CPUOf(cmd.Process.Pid); err != nil {
				return 0, err
			}
		}
		got, err := client.Discard(ctx, load.Request{Method: http.MethodGet, Path: "/"})
		if err != nil {
			return 0, fmt.Errorf("a plain server: %w", err)
		}
		if got != size {
			return 0, fmt.Errorf("a plain server sent %d bytes, not %d", got, size)
		}
	}
	after, err := load.CPUOf(cmd.Process.Pid)
	return after - before, err
}
