package store

import (
	"sync"
	"time"
)

// alarm is a goroutine that calls a function at times that the function itself chooses: each call sets at, the time of
// the next one. When work becomes due earlier than at, notify(alarm.recheck) makes the goroutine call the function at
// once.
//
// The problem: the next due time may change with every commit, and there are hundreds of thousands of versions that
// expire. A timer for each version, or one that each commit resets, costs a timer operation for every write. Here a
// commit compares two times under a lock that it holds anyway (laterThan), and wakes the goroutine only if a due time
// is earlier than all others before.
//
//	work is due at t  ⇒  at ≤ t, or recheck has a token, or the function is running
//
// The time is read before the call, and the timer is set to at minus that time. So work that becomes due during the
// call is late by at most the length of the call. A token that arrives during the call stays in recheck, and causes
// another call.
type alarm struct {
	// at is when to make the next call; zero: only on recheck. The function sets it, and the owner's lock guards it.
	at      time.Time
	recheck chan struct{} // of capacity 1
	// poll is how often to call with the clock of a test, which fires no timers; 0: never.
	poll time.Duration
	quit chan struct{}
	wait sync.WaitGroup
}

// start calls check at once, and then at the times that it sets.
func (a *alarm) start(fakeClock bool, now func() time.Time, check func(now time.Time)) {
	if fakeClock {
		a.poll = 5 * time.Millisecond
	}
	a.recheck, a.quit = make(chan struct{}, 1), make(chan struct{})
	a.wait.Go(func() { a.run(now, check) })
}

// run is the goroutine.
func (a *alarm) run(now func() time.Time, check func(now time.Time)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		began := now()
		check(began)
		var fires <-chan time.Time
		// Only check writes at, on this goroutine, so it can be read here without the lock.
		if a.poll > 0 {
			timer.Reset(a.poll)
			fires = timer.C
		} else if !a.at.IsZero() {
			timer.Reset(a.at.Sub(began))
			fires = timer.C
		}
		select {
		case <-fires:
		case <-a.recheck:
		case <-a.quit:
			return
		}
	}
}

// laterThan says whether the next call is later than t, or not planned at all. The caller holds the owner's lock.
func (a *alarm) laterThan(t time.Time) bool { return a.at.IsZero() || t.Before(a.at) }

// stop ends the goroutine and waits for it.
func (a *alarm) stop() {
	close(a.quit)
	a.wait.Wait()
}

// notify sends to a channel of capacity 1 without blocking: one token represents any number of notifications.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
