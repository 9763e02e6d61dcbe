package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/fairness"
)

// places is a server with few places, in whose authorizer requests of the users flood and other stay until leave
// receives.
type places struct {
	*Handler
	t        *testing.T
	fairness *fairness.Fairness
	leave    chan string

	mu     sync.Mutex
	inside []string // users, in the order in which their requests began
}

func newPlaces(t *testing.T, s *server, c fairness.Config) *places {
	p := &places{t: t, leave: make(chan string), fairness: fairness.New(c)}
	s.config.Fairness = p.fairness
	s.config.Authorizer = access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision,
		string, error) {
		if a.Path == "/wait" {
			p.mu.Lock()
			p.inside = append(p.inside, a.User.Name)
			p.mu.Unlock()
			<-p.leave
		}
		return access.Allow, "", nil
	})
	s.config.Authenticate = func(_ context.Context, r *http.Request) (*access.Identity, error) {
		u := access.User{Name: r.Header.Get("User"), Groups: []string{access.Authenticated}}
		if u.Name == "master" {
			u.Groups = append(u.Groups, access.Masters)
		}
		return &access.Identity{User: u}, nil
	}
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	p.Handler = h
	return p
}

// ask sends a request and returns the status of its answer.
func (p *places) ask(ctx context.Context, user, path string) int {
	r, _ := http.NewRequestWithContext(ctx, "GET", "https://localhost"+path, nil) // they are valid
	r.Header.Set("User", user)
	w := &codeWriter{discardWriter: discardWriter{header: http.Header{}}}
	p.ServeHTTP(w, r)
	return w.code
}

func (p *places) began() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.inside...)
}

// SPEC: AUTH-8
// With two places, two of ten requests of one user execute. The next one is another user's, and those of masters do
// not wait. A request whose time is over while it waits gets 504, and does not execute.
func TestPlaces(t *testing.T) { inBubble(t, nil, testPlaces) }

func testPlaces(t *testing.T, s *server) {
	p := newPlaces(t, s, fairness.Config{Seats: 100, Places: 2, PlacesOfOne: 2})
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() { p.ask(t.Context(), "flood", "/wait") })
	}
	if began := p.began(); len(began) != 2 {
		t.Errorf("%d of 10 requests execute in 2 places", len(began))
	}
	if f := p.fairness.Places(); f.Held != 2 || f.Waiting != 8 {
		t.Errorf("%+v", f)
	}
	if code := p.ask(t.Context(), "master", "/version"); code != 200 {
		t.Errorf("a master got %d", code)
	}
	wait.Go(func() { p.ask(t.Context(), "other", "/wait") })
	if code := p.ask(t.Context(), "late", "/wait?timeout=1s"); code != 504 {
		t.Errorf("a request that has waited for its whole time got %d", code)
	}
	synctest.Wait()
	time.Sleep(time.Second) // both of the flood have executed for some time
	p.leave <- ""
	if began := p.began(); len(began) != 3 || began[2] != "other" {
		t.Errorf("behind two requests of the flood comes %v", began)
	}
	for range 10 {
		p.leave <- ""
	}
	wait.Wait()
	if f := p.fairness.Places(); f.Held != 0 || f.Waiting != 0 {
		t.Errorf("at the end %+v", f)
	}
}

// SPEC: BEY-9
// While a plane floods with requests of users and of its own masters, a request of another plane in the process
// executes after a moment, and those of masters of the first plane need no place.
func TestPlacesOfPlanes(t *testing.T) { inBubble(t, nil, testPlacesOfPlanes) }

func testPlacesOfPlanes(t *testing.T, s *server) {
	capacity := fairness.NewCapacity(fairness.CapacityConfig{Seats: 100, Places: 2, PlacesOfOne: 2})
	planeOf := func(of fairness.ShareConfig) *places {
		return newPlaces(t, s, fairness.Config{Share: capacity.Share(of)})
	}
	flooded, other := planeOf(fairness.ShareConfig{}), planeOf(fairness.ShareConfig{})
	first := planeOf(fairness.ShareConfig{Exempts: true})
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() { flooded.ask(t.Context(), "flood"+strconv.Itoa(i), "/wait") })
		wait.Go(func() { flooded.ask(t.Context(), "master", "/wait") })
	}
	// If both places are of one level, the other one gets a place beyond them (execution.Band).
	began := flooded.began()
	if len(began) == 3 && (began[0] == "master") == (began[1] == "master") {
		began = slices.DeleteFunc(began, func(user string) bool { return (user == "master") != (began[0] == "master") })
	}
	if len(began) != 2 {
		t.Errorf("of a plane with masters %v execute in 2 places", began)
	}
	wait.Go(func() { first.ask(t.Context(), "master", "/wait") })
	if began := first.began(); len(began) != 1 {
		t.Error("a master of the first plane waits for a place")
	}
	wait.Go(func() { other.ask(t.Context(), "jane", "/wait") })
	time.Sleep(time.Millisecond)
	if began := other.began(); len(began) != 1 {
		t.Error("a request of another plane waits for a flood")
	}
	first.leave <- ""
	other.leave <- ""
	for range 40 {
		flooded.leave <- ""
	}
	wait.Wait()
	if f := capacity.Places(); f.Held != 0 || f.Waiting != 0 || capacity.Figures() != (fairness.ShareFigures{}) {
		t.Errorf("at the end %+v", f)
	}
}
