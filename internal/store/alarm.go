package store

import (
	"sync"
	"time"
)

// alarm is a goroutine that does something whenever it is due.
type alarm struct {
	at    time.Time     // when it rings next; zero: not by itself. The owner's lock guards it, and look sets it.
	early chan struct{} // receives when something is due before that
	poll  time.Duration // with the clock of a test: how often it is read
	quit  chan struct{}
	wait  sync.WaitGroup
}

// start calls look at once, and then whenever the time at that it sets has come.
func (a *alarm) start(fakeClock bool, now func() time.Time, look func(now time.Time)) {
	if fakeClock {
		a.poll = 5 * time.Millisecond
	}
	a.early, a.quit = make(chan struct{}, 1), make(chan struct{})
	a.wait.Go(func() { a.run(now, look) })
}

func (a *alarm) run(now func() time.Time, look func(now time.Time)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		began := now()
		look(began)
		var rings <-chan time.Time
		// Nobody but look sets at, so it can be read here without the lock.
		if a.poll > 0 {
			timer.Reset(a.poll)
			rings = timer.C
		} else if !a.at.IsZero() {
			timer.Reset(a.at.Sub(began))
			rings = timer.C
		}
		select {
		case <-rings:
		case <-a.early:
		case <-a.quit:
			return
		}
	}
}

// after says whether the alarm rings later than at a time, or never. The caller holds the owner's lock.
func (a *alarm) after(t time.Time) bool { return a.at.IsZero() || t.Before(a.at) }

func (a *alarm) stop() {
	close(a.quit)
	a.wait.Wait()
}

// nudge sends without waiting: one token stands for any number of them.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
