package soak

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// SPEC: WATCH-1, WATCH-6: thousands of watches without events cost a few kilobytes each, their connections included,
// and each of them gets the event at the end.
func TestIdleWatches(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it does not report its memory
	}
	const watches, each, limit = 10000, 100, 15 << 10
	server, client, path := begin(t, "--storage=memory", "--profiling")
	before, err := load.Held(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	readers := load.New(server, watches/each)
	defer readers.Close()
	bodies := make([]io.ReadCloser, watches)
	err = load.Each(16, watches, func(i int) error {
		response, err := readers.Start(t.Context(), load.Request{Method: http.MethodGet, Path: path})
		if err == nil {
			bodies[i] = response.Body
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	open, err := load.Held(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	one := (open - before) / watches
	resident, err := load.RSS(server)
	if err != nil {
		t.Fatal(err)
	}
	// Each holds at least a request, its stream and the cursor; less than this means that the watches were not open.
	const least = 1 << 10
	t.Logf("%d watches on %d connections: %d bytes each; the server has %d MiB", watches, watches/each, one, resident>>20)
	if one > limit || one < least {
		t.Errorf("an idle watch holds %d bytes", one)
	}
	busy, err := load.CPU(server)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	after, err := load.CPU(server)
	if err != nil {
		t.Fatal(err)
	}
	// Watches are not polled: an idle server needs a few milliseconds a second, however many are open.
	if used := after - busy; used > 300*time.Millisecond {
		t.Errorf("%d idle watches cost %s in 2 s", watches, used)
	}
	fill(t, client, "pod", 1, 10)
	for i, body := range bodies {
		line, err := bufio.NewReader(body).ReadSlice('\n')
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		if e, err := parse(line); err != nil || e.kind != "ADDED" || e.name != "pod-0" {
			t.Fatalf("watch %d: %+v, %v", i, e, err)
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
