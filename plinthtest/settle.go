package plinthtest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing/synctest"
	"time"
)

const (
	// settleLimit is how long Settle waits if its context has no deadline, by the clock of the plane.
	settleLimit = time.Minute
	// settlePause is between two looks. Outside of a bubble settleLooks of them in a row have to find nothing to do.
	settlePause = time.Millisecond
	settleLooks = 3
	// settleQuiet is how much virtual time has to pass in a bubble without a request. It costs nothing there.
	settleQuiet = time.Second
)

// Settle waits until nothing is left to do: no request is under way, every watch has sent all events and its client
// waits for the next one, and no controller of Plinth has work. It replaces loops that ask again and again whether
// something has happened.
//
// In a bubble it also waits until all goroutines of the code under test wait, and a second of virtual time has passed
// without a request: so it covers that code as a whole, with its short delays. Outside of a bubble it covers the
// server and what its clients have received: code that has an event in hand, or in a queue, is not seen.
//
// What waits for its time to come is not waited for: a request to be sent again after a delay, an object to be looked
// at again in an hour, the resync of an informer. In a bubble, time.Sleep before Settle lets these times pass.
//
// It returns an error when ctx ends, or after a minute by the clock of the plane if ctx has no deadline; the error
// says what was still going on. In a bubble only one goroutine at a time may call it.
func (p *Plane) Settle(ctx context.Context) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleLimit)
		defer cancel()
	}
	if p.bubble {
		return p.settleBubble(ctx)
	}
	for quiet := 0; ; {
		busy := p.busy()
		if quiet++; busy != "" {
			quiet = 0
		}
		if quiet == settleLooks {
			return nil
		}
		if err := wait(ctx, settlePause); err != nil {
			return notSettled(busy, err)
		}
	}
}

func notSettled(busy string, err error) error {
	return fmt.Errorf("plinthtest: the control plane does not settle: %s: %w", busy, err)
}

// settleBubble is Settle in a bubble.
func (p *Plane) settleBubble(ctx context.Context) error {
	for {
		synctest.Wait()
		busy, seen := p.busy(), p.front.count()
		pause := settlePause
		if busy == "" {
			pause = settleQuiet
		}
		if err := wait(ctx, pause); err != nil {
			return notSettled(cmp.Or(busy, "requests are made again and again"), err)
		}
		synctest.Wait()
		if busy == "" && p.front.count() == seen && p.busy() == "" {
			return nil
		}
	}
}

// busy says what is going on; "" if nothing is.
func (p *Plane) busy() string {
	var all []string
	if n := p.front.underWay(); n > 0 {
		all = append(all, fmt.Sprintf("%d requests are under way", n))
	}
	s := p.current()
	// Clients that have read everything may lead to cursors that have not: so the clients are looked at first.
	if !p.front.streams.settled() {
		all = append(all, "a client has not read the events of its watch")
	}
	if stats := s.Store.Stats(); stats.Cursors > stats.Waiting {
		all = append(all, fmt.Sprintf("%d watches have events to send", stats.Cursors-stats.Waiting))
	} else if s.Busy() {
		all = append(all, "controllers have work")
	}
	return strings.Join(all, ", ")
}
