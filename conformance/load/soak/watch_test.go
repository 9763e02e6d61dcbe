package soak

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// event is the part of an event that a watcher keeps.
type event struct {
	kind, name string
	rv         uint64
}

func parse(line []byte) (event, error) {
	// The names of members are unique in a Pod's event up to its spec; a JSON parser for 200 watchers would be the test's
	// bottleneck.
	e := event{}
	for _, member := range []struct {
		name string
		into *string
	}{{`"type":"`, &e.kind}, {`"name":"`, &e.name}} {
		_, after, ok := bytes.Cut(line, []byte(member.name))
		if !ok {
			return e, fmt.Errorf("no %s in %.200s", member.name, line)
		}
		value, _, _ := bytes.Cut(after, []byte(`"`))
		*member.into = string(value)
	}
	var err error
	e.rv, err = strconv.ParseUint(load.ResourceVersion(line), 10, 64)
	return e, err
}

// SPEC: WATCH-1: 200 watchers and 8 writers: every watcher sees every event once, in order.
func TestWatchers(t *testing.T) {
	const watchers, writers, objects = 200, 8, 50
	duration := scale(3*time.Second, time.Minute)
	server := harness.RunTarget(t)
	client := load.New(server, writers)
	if err := client.Namespace(t.Context(), "soak"); err != nil {
		t.Fatal(err)
	}
	list, err := client.Do(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	readers := load.New(server, 20)
	streams := make([]*http.Response, watchers)
	for i := range streams {
		path := podsPath + "?watch=1&resourceVersion=" + load.ResourceVersion(list)
		if streams[i], err = readers.Start(ctx, load.Request{Method: http.MethodGet, Path: path}); err != nil {
			t.Fatal(err)
		}
	}

	// The writes, by the resourceVersions in the responses.
	var mu sync.Mutex
	done := map[uint64]event{}
	deleted := 0
	until := time.Now().Add(duration)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				name := fmt.Sprintf("pod-%d-%d", w, i%objects)
				rq := load.Request{Method: http.MethodPost, Path: podsPath, Body: load.Pod("soak", name, i)}
				kind := "ADDED"
				switch (i / objects) % 3 {
				case 1:
					rq = load.Request{Method: http.MethodPatch, Path: podsPath + "/" + name,
						ContentType: "application/merge-patch+json",
						Body:        fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, i)}
					kind = "MODIFIED"
				case 2:
					rq = load.Request{Method: http.MethodDelete, Path: podsPath + "/" + name}
					kind = "DELETED"
				}
				body, err := client.Do(ctx, rq)
				if err != nil {
					t.Errorf("%s %s: %v", rq.Method, name, err)
					return
				}
				mu.Lock()
				if kind == "DELETED" {
					deleted++ // the response does not have the version of the deletion
				} else if rv, err := load.Revision(body); err != nil {
					t.Error(err)
				} else {
					done[rv] = event{kind, name, rv}
				}
				mu.Unlock()
			}
		})
	}

	// The watchers read up to the event of the Pod "last", which is created when the writers are done.
	seen := make([][]event, watchers)
	finished := make(chan int)
	var reading sync.WaitGroup
	for i, stream := range streams {
		reading.Go(func() {
			defer stream.Body.Close()
			lines := bufio.NewReaderSize(stream.Body, 32<<10)
			for {
				line, err := lines.ReadSlice('\n')
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("watcher %d: %v", i, err)
					}
					return
				}
				e, err := parse(line)
				if err != nil {
					t.Error(err)
					return
				}
				seen[i] = append(seen[i], e)
				if e.name == "last" {
					finished <- i
					return
				}
			}
		})
	}
	writing.Wait()
	if _, err := client.Do(ctx, load.Request{Method: http.MethodPost, Path: podsPath,
		Body: load.Pod("soak", "last", 0)}); err != nil {
		t.Fatal(err)
	}
	for range watchers {
		select {
		case <-finished:
		case <-time.After(time.Minute):
			t.Fatal("not every watcher comes to the end")
		}
	}
	cancel()
	reading.Wait()
	want := len(done) + deleted
	t.Logf("%d events to each of %d watchers", want, watchers)
	for i, events := range seen {
		events = events[:len(events)-1]
		if len(events) != want {
			t.Errorf("watcher %d has seen %d events of %d", i, len(events), want)
		}
		for j, e := range events {
			if j > 0 && e.rv <= events[j-1].rv {
				t.Errorf("watcher %d: version %d after %d", i, e.rv, events[j-1].rv)
			}
			if was, known := done[e.rv]; e.kind != "DELETED" && (!known || was != e) {
				t.Errorf("watcher %d: %+v, and what was done is %+v", i, e, was)
			}
			if e != seen[0][j] {
				t.Fatalf("watcher %d sees %+v where watcher 0 sees %+v", i, e, seen[0][j])
			}
		}
	}
}
