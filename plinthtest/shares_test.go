package plinthtest

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/fairness"
	"plinth/internal/plane"
)

// sharing returns a plane that has a share of a process, and does not run by itself.
func sharing(t *testing.T, share *fairness.Share, withFairness bool) *plane.Plane {
	t.Helper()
	var s settings
	image, err := initialImage(t.Context(), s, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.config(false, image.state, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Limits.Fairness, c.Limits.Share = withFairness, share
	p, err := plane.New(t.Context(), *c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// asked sends a list of a user to a plane, whose answer is larger than what net/http keeps back.
func asked(t *testing.T, p *plane.Plane, u access.User, w http.ResponseWriter) {
	ctx := auth.As(t.Context(), &access.Identity{User: u})
	r := httptest.NewRequestWithContext(ctx, "GET", "https://localhost/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=20", nil)
	p.Handler().ServeHTTP(w, r)
}

// slowClient is a client that reads its answer when read is closed. A refusal it does read.
type slowClient struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (c *slowClient) Write(b []byte) (int, error) {
	if c.Code == http.StatusOK {
		<-c.read
	}
	return c.ResponseRecorder.Write(b)
}

// SPEC: BEY-9, BEY-10
// One plane is flooded by 200 requests of many users and of its own masters, whose clients do not read. Each of 100
// requests of another plane in the process is answered although none of the flood ends, and none of it begins
// meanwhile. Without fairness the limit of the flooded plane sees to that.
func TestFloodOfAnotherPlane(t *testing.T) {
	for _, withFairness := range []bool{true, false} {
		capacity := fairness.NewCapacity(fairness.CapacityConfig{Seats: 20})
		limit := 0
		if !withFairness { // nothing waits for seats, so that only limits keep a flood from all of them
			limit = 10
		}
		share := capacity.Share(fairness.ShareConfig{Requests: limit})
		flooded := sharing(t, share, withFairness)
		quiet := sharing(t, capacity.Share(fairness.ShareConfig{}), withFairness)
		read := make(chan struct{})
		var ended atomic.Int64
		var wait sync.WaitGroup
		for i := range 200 {
			u := access.User{Name: "user" + strconv.Itoa(i%50), Groups: []string{access.Authenticated, access.Masters}}
			wait.Go(func() {
				asked(t, flooded, u, &slowClient{httptest.NewRecorder(), read})
				ended.Add(1)
			})
		}
		for under := 0; under+int(ended.Load()) < 200; { // until all have seats, wait or were refused
			runtime.Gosched()
			f := share.Figures()
			under = f.Requests + f.Waiting
		}
		if f := share.Figures(); f.Requests < 10 || f.Requests > 20 {
			t.Errorf("of the flood %d requests are served", f.Requests)
		}
		for range 100 {
			before := share.Figures().Requests
			w := httptest.NewRecorder()
			asked(t, quiet, access.User{Name: "jane", Groups: []string{access.Authenticated, access.Masters}}, w)
			if after := share.Figures().Requests; w.Code != 200 || after != before {
				t.Fatalf("fairness %v: the other plane answers %d, after %d of the flood", withFairness, w.Code, after-before)
			}
		}
		close(read)
		wait.Wait()
		if f := capacity.Figures(); f.Seats != 0 || f.Waiting != 0 || capacity.Places().Held != 0 {
			t.Errorf("at the end %+v, %+v", f, capacity.Places())
		}
		for _, p := range []*plane.Plane{flooded, quiet} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// SPEC: BEY-11
// A process keeps nothing of a plane that was closed, although its share is used again by the next one.
func TestClosedPlaneIsLetGo(t *testing.T) {
	capacity := fairness.NewCapacity(fairness.CapacityConfig{Seats: 20})
	share := capacity.Share(fairness.ShareConfig{})
	closed := func() weak.Pointer[fairness.Fairness] {
		p := sharing(t, share, true)
		for range 3 {
			w := httptest.NewRecorder()
			asked(t, p, access.User{Name: "jane", Groups: []string{access.Masters}}, w)
			if w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		return weak.Make(p.Fairness)
	}
	for range 3 {
		f := closed()
		runtime.GC()
		runtime.GC()
		if f.Value() != nil {
			t.Fatal("the process keeps what a closed plane had")
		}
	}
	runtime.KeepAlive(capacity)
}
