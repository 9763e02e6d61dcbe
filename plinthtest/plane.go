package plinthtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/plane"
)

// Plane is a control plane. Its methods may be used concurrently, unless they take a testing.TB or say otherwise.
type Plane struct {
	t        testing.TB
	settings settings
	bubble   bool // it was made in a bubble
	front    *front
	port     port

	mu      sync.Mutex // held to replace plane and history, and for running
	plane   *plane.Plane
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

// begin begins anew with the objects of an image. No revision that it gives out is before after.
func (p *Plane) begin(ctx context.Context, image *plane.Image, after int64) error {
	c, err := p.settings.config(p.bubble, image, after, nil)
	if err != nil {
		return err
	}
	c.Webhooks = p.settings.webhooks
	if p.settings.runs("*") || len(p.settings.controllers) > 0 {
		c.Controllers = p.settings.controllers
	}
	made, err := plane.New(ctx, *c)
	if err != nil {
		return err
	}
	made.Run(nil)
	p.history = follow(made.Store)
	p.plane = made
	return nil
}

// current is what answers requests now.
func (p *Plane) current() *plane.Plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plane
}

// past is the history of current.
func (p *Plane) past() *history {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history
}

// close ends the code under test, the requests under way, and the plane.
func (p *Plane) close() error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	for _, stop := range running {
		stop()
	}
	err := p.port.close()
	p.front.close()
	if p.plane != nil {
		err = errors.Join(err, p.plane.Close())
		p.history.close()
	}
	return err
}

// Host is the host of the plane in the URLs of its clients: rest.Config.Host, for example. It is known to Transport
// alone, and no name that could be resolved.
func (p *Plane) Host() string { return "http://" + host }

const host = "plinth.test"
