package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A server that ends refuses requests as the reference does, on a connection that ends, but for health checks; those
// under way are waited for.
//
// SPEC: RUN-1
func TestRefusesAtTheEnd(t *testing.T) {
	draining := &Draining{}
	s := newServer(t, func(c *Config) { c.Draining = draining })
	body, answered := s.slowly("POST", configMaps, "")
	for end := time.Now().Add(time.Minute); draining.underway.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	draining.Refuse()
	refused := s.do("GET", configMaps, "")
	if refused.code != http.StatusTooManyRequests || refused.header.Get("Retry-After") != "5" ||
		strings.TrimSpace(refused.body) != "The apiserver is shutting down, please try again later." {
		t.Errorf("got %d %v %q", refused.code, refused.header, refused.body)
	}
	if n := draining.underway.Load(); n != 1 {
		t.Errorf("%d requests are under way, and one was not refused", n)
	}
	if ends := s.open("GET", configMaps, ""); !ends.Close && ends.ProtoMajor == 1 {
		t.Error("the connection goes on")
	}
	if health := s.do("GET", "/readyz", ""); health.code != http.StatusOK {
		t.Errorf("/readyz: %d", health.code)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if draining.Idle(short); short.Err() == nil {
		t.Error("a request is under way, and is not waited for")
	}
	if _, err := body.Write([]byte(`{"metadata":{"name":"slow"}}`)); err != nil {
		t.Fatal(err)
	}
	body.Close()
	draining.Idle(t.Context())
	if got := <-answered; got.code != http.StatusCreated {
		t.Errorf("the request that was under way got %d", got.code)
	}
}

// Watches end one after another, within the time for all.
//
// SPEC: RUN-1, WATCH-6
func TestWatchesEndInTurn(t *testing.T) {
	draining := &Draining{}
	closing, quit := context.WithCancel(context.Background())
	inBubble(t, func(c *Config) { c.Draining, c.Closing = draining, closing }, func(t *testing.T, s *server) {
		const watches = 500
		ended := make(chan time.Time, watches)
		for range watches {
			next := s.watch("resourceVersion=0")
			go func() {
				next()
				ended <- time.Now()
			}()
		}
		synctest.Wait()
		if n := draining.watches.Load(); n != watches {
			t.Errorf("%d watches are counted", n)
		}
		began := time.Now()
		draining.Pace(time.Second)
		quit()
		within := map[time.Duration]int{}
		for range watches {
			within[(<-ended).Sub(began).Truncate(100*time.Millisecond)]++
		}
		if len(within) < 10 || len(within) > 11 {
			t.Errorf("the watches have ended within %v", within)
		}
		for at, n := range within {
			if n > 60 {
				t.Errorf("%d watches have ended within 100 ms, after %v", n, at)
			}
		}
		synctest.Wait()
		if n := draining.watches.Load(); n != 0 {
			t.Errorf("%d watches are counted after their end", n)
		}
	})
}
