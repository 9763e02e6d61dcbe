package soak

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// peak samples the resident memory of a server until it is stopped, and returns the maximum.
func peak(t *testing.T, server *harness.Server) (stop func() int64) {
	t.Helper()
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		var max int64
		for {
			rss, err := load.RSS(server)
			if err != nil {
				t.Error(err)
			}
			if rss > max {
				max = rss
			}
			select {
			case <-done:
				most <- max
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(done); return <-most }
}

// SPEC: LIST-8: concurrent lists of a whole collection need no copies of it: the memory of the server stays within 1.3
// times of what it is at rest.
func TestListsAtOnce(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it holds a response for each
	}
	pods, rounds := scale(2000, 10000), scale(1, 5)
	const clients, limit = 32, 1.3
	server := harness.RunTarget(t)
	client := load.New(server, clients)
	if err := client.Namespace(t.Context(), "soak"); err != nil {
		t.Fatal(err)
	}
	fill(t, client, "pod", pods, 1000)
	time.Sleep(scale(time.Second, 10*time.Second)) // let the server become idle
	resting, err := load.RSS(server)
	if err != nil {
		t.Fatal(err)
	}
	stop := peak(t, server)
	var bytes int64
	for round := range rounds {
		began := time.Now()
		err := load.Each(clients, clients, func(i int) error {
			n, err := client.Discard(t.Context(), load.Request{Method: http.MethodGet, Path: podsPath})
			if i == 0 {
				bytes = n
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d lists of %d MB in %s", round, clients, bytes>>20, time.Since(began).Round(time.Millisecond))
		for i := range pods / 100 { // so that earlier responses cannot be reused
			path := podsPath + fmt.Sprintf("/pod-%d", i*100)
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, round)
			if _, err := client.Discard(t.Context(), load.Request{Method: http.MethodPatch, Path: path, Body: patch,
				ContentType: "application/merge-patch+json"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	most := stop()
	t.Logf("at rest %d MiB, at most %d MiB: %.2f times", resting>>20, most>>20, float64(most)/float64(resting))
	// few Pods are small compared with the buffers
	if base := int64(scale(32<<20, 0)); float64(most) > limit*float64(resting)+float64(base) {
		t.Errorf("the memory grows from %d to %d MiB", resting>>20, most>>20)
	}
}
