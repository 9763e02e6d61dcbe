package plinthtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/server"
)

// Plane is a control plane. Its methods may be used concurrently, unless they take a testing.TB or say otherwise.
type Plane struct {
	t        testing.TB
	settings settings
	bubble   bool // it was made in a bubble
	front    *front
	port     port

	mu      sync.Mutex // held to replace server and history, and for running
	server  *server.Server
	history *history
	running []func() // stop the code that Run runs
}

// New returns a new control plane, which ends with the test. It may be used in parallel tests, and in a bubble.
func New(t testing.TB, o ...Option) *Plane {
	t.Helper()
	p, err := newPlane(t.Context(), o)
	if err != nil {
		t.Fatalf("plinthtest: %v", err)
	}
	p.t = t
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Errorf("plinthtest: %v", err)
		}
	})
	return p
}

// Run runs the code under test, such as a manager with its controllers, on a goroutine of its own until the plane
// ends, or until stop is called: ctx ends then, and Run's goroutine is waited for. In a bubble that matters: time
// stands still once the test function has returned, and a manager takes some to stop.
func (p *Plane) Run(start func(ctx context.Context, p *Plane)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		start(ctx, p)
	}()
	stop = func() {
		cancel()
		<-done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, stop)
	return stop
}

// With runs f with a new control plane, which ends when f returns: for benchmarks, and where a test takes many of
// them.
func With(t testing.TB, f func(*Plane), o ...Option) {
	t.Helper()
	p, err := newPlane(t.Context(), o)
	if err != nil {
		t.Fatalf("plinthtest: %v", err)
	}
	p.t = t
	defer func() {
		if err := p.close(); err != nil {
			t.Errorf("plinthtest: %v", err)
		}
	}()
	f(p)
}

// Bubble runs f in a bubble of testing/synctest with a new control plane. Time in it is virtual: whenever all
// goroutines wait, it moves on to the next timer. So hours of retries, leases and schedules pass in milliseconds, and
// a test never waits for an event that has not come yet. f has to end what it has started, such as a manager, before
// it returns.
func Bubble(t *testing.T, f func(*testing.T, *Plane), o ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, New(t, o...)) })
}

// bubbleStart is when the clock of each bubble begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// inBubble says whether the caller is in a bubble: by a clock that is decades behind.
func inBubble() bool { return time.Since(bubbleStart) < 15*365*24*time.Hour }

func newPlane(ctx context.Context, o []Option) (*Plane, error) {
	var all options
	for _, option := range o {
		option(&all)
	}
	p := &Plane{bubble: inBubble()}
	image := all.image
	if image != nil {
		p.settings = image.settings.with(all.settings)
	} else {
		p.settings = all.settings
		var err error
		if image, err = initialImage(ctx, p.settings, p.bubble); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(all.errs...); err != nil {
		return nil, err
	}
	image, err := image.withDefinitions(ctx, all.definitions, p.bubble)
	if err != nil {
		return nil, err
	}
	p.front = newFront(p)
	if err := p.begin(ctx, image.state, 0); err != nil {
		return nil, errors.Join(err, p.close())
	}
	for _, text := range all.objects {
		if err := p.create(ctx, text); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// begin starts a server with the objects of an image. No revision that it gives out is before after.
func (p *Plane) begin(ctx context.Context, image *server.Image, after int64) error {
	c := p.settings.config(p.bubble)
	c.Image, c.ImageAfter = image, after
	c.Webhooks = p.settings.webhooks
	if p.settings.runs("*") || len(p.settings.controllers) > 0 {
		c.Controllers = p.settings.controllers
	}
	s, err := server.Start(ctx, c)
	if err != nil {
		return err
	}
	p.history = follow(s.Store())
	p.server = s
	return nil
}

// current is the server that answers requests now.
func (p *Plane) current() *server.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// past is the history of the current server.
func (p *Plane) past() *history {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history
}

// close ends the code under test, the requests under way, and the server.
func (p *Plane) close() error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	for _, stop := range running {
		stop()
	}
	err := p.port.close()
	p.front.close()
	if p.server != nil {
		err = errors.Join(err, p.server.Close())
		p.history.close()
	}
	return err
}

// Host is the host of the plane in the URLs of its clients: rest.Config.Host, for example. It is known to Transport
// alone, and no name that could be resolved.
func (p *Plane) Host() string { return "http://" + host }

const host = "plinth.test"

// settings are what images and the planes that begin with them have in common.
type settings struct {
	gates           []string // NAME=true
	runtimeConfig   []string
	enable, disable []string // admission plugins
	controllers     []string
	hooks           []*hooks
	logger          *slog.Logger
}

// with returns s with those of other in addition.
func (s settings) with(other settings) settings {
	s.gates = slices.Concat(s.gates, other.gates)
	s.runtimeConfig = slices.Concat(s.runtimeConfig, other.runtimeConfig)
	s.enable, s.disable = slices.Concat(s.enable, other.enable), slices.Concat(s.disable, other.disable)
	s.controllers = slices.Concat(s.controllers, other.controllers)
	s.hooks = slices.Concat(s.hooks, other.hooks)
	if other.logger != nil {
		s.logger = other.logger
	}
	return s
}

// key identifies the settings on which the objects of a new server depend.
func (s *settings) key() string {
	return fmt.Sprintf("%q %q %q %q", s.gates, s.runtimeConfig, s.enable, s.disable)
}

// runs says whether a controller is on by name or by "*".
func (s *settings) runs(controller string) bool {
	return slices.Contains(s.controllers, controller) || slices.Contains(s.controllers, "*")
}

// watchTime is the least time of a watch without timeoutSeconds: it lasts as long as the plane. As in kube-apiserver
// the time is random above that, and a test must not depend on it.
const watchTime = 10 * 365 * 24 * time.Hour

// bubbleBookmarks is the time between bookmarks in a bubble, where years may pass. No connection breaks there unless
// a test wants it.
const bubbleBookmarks = 10 * time.Minute

// none enables no controller: in a list without "*", only those that are named are on.
const none = "-namespace-controller"

// config is the configuration of a server with these settings, without controllers and webhooks.
func (s *settings) config(bubble bool) server.Config {
	c := server.Defaults()
	c.DataDir, c.Storage, c.InProcess = "", "memory", true
	c.FeatureGates, c.Versions.Pairs = s.gates, s.runtimeConfig
	c.EnableAdmission, c.DisableAdmission = s.enable, slices.Clone(s.disable)
	if !s.runs("serviceaccount-controller") && !slices.Contains(s.enable, "ServiceAccount") {
		c.DisableAdmission = append(c.DisableAdmission, "ServiceAccount")
	}
	c.Controllers = []string{none}
	c.MinRequestTimeout = int(watchTime / time.Second)
	if bubble {
		c.BookmarkInterval = bubbleBookmarks
	}
	if c.Logger = s.logger; c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	k := sharedKeys(bubble)
	c.Authority, c.AccountKey = k.authority, k.account
	return c
}
