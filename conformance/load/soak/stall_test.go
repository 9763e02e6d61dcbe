package soak

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// stalled opens a watch that the test reads when it chooses: over HTTP/1.1, on a socket with hardly any buffer, so that
// the server cannot send its events and has to wait.
func stalled(t *testing.T, server *harness.Server, path string) *bufio.Reader {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		return errors.Join(err, failed)
	}}
	conn, err := tls.DialWithDialer(&dialer, "tcp", strings.TrimPrefix(server.URL, "https://"),
		&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	request, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	if err := request.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the watch answers %s", response.Status)
	}
	return bufio.NewReaderSize(response.Body, 64<<10)
}

// fill creates Pods of about weight bytes.
func fill(t *testing.T, client *load.Client, prefix string, n, weight int) {
	t.Helper()
	padding := bytes.Repeat([]byte("x"), weight)
	err := load.Each(16, n, func(i int) error {
		body := load.Pod("soak", fmt.Sprintf("%s-%d", prefix, i), i)
		body = bytes.Replace(body, []byte(`"labels":{`),
			fmt.Appendf(nil, `"annotations":{"padding":"%s"},"labels":{`, padding), 1)
		_, err := client.Discard(t.Context(), load.Request{Method: http.MethodPost, Path: podsPath, Body: body})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, flags ...string) (*harness.Server, *load.Client, string) {
	t.Helper()
	server := harness.RunTarget(t, flags...)
	client := load.New(server, 8)
	if err := client.Namespace(t.Context(), "soak"); err != nil {
		t.Fatal(err)
	}
	return server, client, watchFromNow(t, client)
}

// watchFromNow returns the path of a watch for future events.
func watchFromNow(t *testing.T, client *load.Client) string {
	t.Helper()
	list, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath + "?limit=1"})
	if err != nil {
		t.Fatal(err)
	}
	return podsPath + "?watch=1&resourceVersion=" + load.ResourceVersion(list)
}

// SPEC: WATCH-6: a watcher that does not read costs the server a position in its history, and misses no events when it
// continues within the window.
func TestStalledWatchersHoldNothing(t *testing.T) {
	t.Parallel()
	if harness.Target() == harness.Reference {
		return // it buffers events, and ends watches that lag
	}
	const watchers, writes, weight, limit = 300, 1000, 10_000, 64 << 10
	server, client, _ := begin(t, "--storage=memory", "--profiling") // the writes take less time than a watcher may stall
	memory := func(prefix string, writes int) int64 {
		t.Helper()
		fill(t, client, prefix, writes, weight)
		time.Sleep(time.Second)
		held, err := load.Held(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	// The same writes twice without the watchers, and once with them: the additional memory of the third time is for the
	// watchers, apart from their connections.
	first := memory("first", writes)
	second := memory("second", writes)
	path := watchFromNow(t, client)
	var streams []*bufio.Reader
	for range watchers {
		streams = append(streams, stalled(t, server, path))
	}
	open := memory("open", 0)
	third := memory("third", writes)
	each := (third - open - (second - first)) / watchers
	t.Logf(
		"%d, %d, with %d watchers %d, that have stalled %d kB: %d kB for each connection, %d kB for each stalled watcher",
		first>>10, second>>10, watchers, open>>10, third>>10, (open-second)/watchers>>10, each>>10)
	if each > limit {
		t.Errorf("a stalled watcher holds %d bytes", each)
	}
	for i, lines := range streams[:scale(20, watchers)] {
		last := uint64(0)
		for n := range writes {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				t.Fatalf("watcher %d, event %d: %v", i, n, err)
			}
			e, err := parse(line)
			if err != nil {
				t.Fatal(err)
			}
			if e.kind != "ADDED" || e.rv <= last {
				t.Fatalf("watcher %d, event %d: %+v after %d", i, n, e, last)
			}
			last = e.rv
		}
	}
}

// SPEC: WATCH-3 WATCH-6: a watcher that falls behind the window gets an ERROR with 410 when it continues, and its
// stream ends.
func TestStalledWatcherPastTheWindow(t *testing.T) {
	t.Parallel()
	if harness.Target() == harness.Reference {
		return // its window is in events and minutes, and cannot be set
	}
	server, client, path := begin(t, "--watch-history-bytes", fmt.Sprint(1<<20))
	stream := stalled(t, server, path)
	fill(t, client, "pod", 4000, 10000)
	decoder := json.NewDecoder(stream)
	for n := 0; ; n++ {
		var e struct {
			Type   string
			Object struct {
				Code   int
				Reason string
			}
		}
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		if e.Type == "ERROR" {
			if e.Object.Code != http.StatusGone || e.Object.Reason != "Expired" {
				t.Errorf("after %d events: %+v", n, e)
			}
			break
		}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("after the error the stream goes on: %v", err)
	}
}

// SPEC: WATCH-6: the server ends a watch whose client reads nothing for longer than the write deadline.
func TestStalledWatcherIsEnded(t *testing.T) {
	t.Parallel()
	if harness.Target() == harness.Reference {
		return // it buffers, and closes when its buffer is full
	}
	const deadline = 30 * time.Second
	server, client, path := begin(t)
	stream := stalled(t, server, path)
	const writes = 3000 // 30 MB, more than sockets buffer
	fill(t, client, "pod", writes, 10000)
	time.Sleep(deadline + 5*time.Second)
	for n := 0; ; n++ {
		line, err := stream.ReadSlice('\n')
		if err != nil {
			t.Logf("ended after %d events: %v", n, err)
			if n >= writes {
				t.Error("it has got everything: nothing has stalled")
			}
			return
		}
		if bytes.Contains(line, []byte(`"type":"ERROR"`)) {
			t.Fatalf("an error in the stream: %s", line)
		}
		if n > writes {
			t.Fatal("it goes on")
		}
	}
}
