// Package election lets one of several processes do what only one may do at a time. The processes share a record that
// names the leader, a Lease of Kubernetes; the leader works.
//
// # The problem
//
// A process may stop at any time without a word, so its term has to end by time, and the others have to know when. But
// clocks differ, and a process may be slow to notice that its term has ended.
//
// # The rules
//
// They are those of client-go's package leaderelection, so that times in the record mean nothing, and only durations by
// the clock of one process do:
//
//	a write of the record requires that it is the one that was read              two claims at once: one is refused
//	a leader that has not renewed since it sent its last renewal at s
//	    stops its work at s + Deadline
//	another one that has seen no change since it saw one at t
//	    takes over at t + Duration
//
// As a record is not seen before it is sent, t ≥ s, and with Deadline < Duration:
//
//	the work of one leader is told to stop Duration − Deadline before that of the next one begins
//
// Work has that long to return. A process whose clock stands still meanwhile, because it is suspended, is not covered;
// its writes compare the versions of objects, as all do.
//
// A leader that is asked to stop gives the record back after its work has returned, and the next one begins at once.
package election

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Record is what the processes share.
type Record struct {
	Revision    int64         // changes with each write; 0: there is no record
	Leader      string        // "": nobody
	Duration    time.Duration // after which others may take it
	Transitions int64         // how often the leader has changed
	// Acquired and Renewed are for people who read the record.
	Acquired, Renewed time.Time
}

// ErrLost says that a record was not written, as it is not the one that was read any more.
var ErrLost = errors.New("another process has written the record")

// Config says who takes part, and what for.
type Config struct {
	Name string // of this process; no other one ever has it
	// Duration and Deadline are those of the package; zero: 15 s and 10 s. Retry is the time between two renewals, and
	// between two looks at the record of another leader; zero: 2 s. They are the defaults of kube-controller-manager.
	Duration, Deadline, Retry time.Duration
	// Read returns the record. Write replaces the record of the given revision by the given content, and returns the new
	// revision or ErrLost.
	Read  func(ctx context.Context) (Record, error)
	Write func(ctx context.Context, r Record) (revision int64, err error)
	// Wake receives when the record may have changed; nil: only Retry leads to another look.
	Wake <-chan struct{}
	// Work works until its context ends.
	Work   func(ctx context.Context)
	Logger *slog.Logger
}

// candidate is the part of a process in the election.
type candidate struct {
	Config
	last   Record
	lastAt time.Time // when the record was first seen as it is
}

// Run takes part until ctx ends, and has then returned from Work and given the record back.
func Run(ctx context.Context, c Config) {
	if c.Duration == 0 {
		c.Duration, c.Deadline = 15*time.Second, 10*time.Second
	}
	if c.Retry == 0 {
		c.Retry = 2 * time.Second
	}
	e := &candidate{Config: c}
	for ctx.Err() == nil {
		if sent, ok := e.acquire(ctx); ok {
			e.Logger.Info("this server runs the controllers from now on", "name", e.Name)
			e.lead(ctx, sent)
			e.Logger.Info("this server does not run the controllers any more", "name", e.Name)
		}
	}
}

// see takes note of a record.
func (e *candidate) see(r Record, now time.Time) {
	if r.Revision != e.last.Revision || e.lastAt.IsZero() {
		e.lastAt = now
	}
	e.last = r
}

// free says how long this process has to wait until it may take the record.
func (e *candidate) free(now time.Time) (wait time.Duration) {
	if e.last.Leader == "" || e.last.Leader == e.Name {
		return 0
	}
	return max(0, e.lastAt.Add(e.last.Duration).Sub(now))
}

// claim is the record with which this process takes it, or renews it.
func (e *candidate) claim(now time.Time) Record {
	next := e.last
	next.Renewed, next.Duration = now, e.Duration
	if next.Leader != e.Name {
		next.Leader, next.Acquired = e.Name, now
		if next.Revision > 0 {
			next.Transitions++
		}
	}
	return next
}

// write writes a record, and takes note of it.
func (e *candidate) write(ctx context.Context, next Record) error {
	revision, err := e.Write(ctx, next)
	if err != nil {
		return err
	}
	next.Revision = revision
	e.see(next, time.Now())
	return nil
}

// acquire waits until this process leads, and returns when it sent the claim; ok is false if ctx has ended.
func (e *candidate) acquire(ctx context.Context) (sent time.Time, ok bool) {
	for failed := false; ctx.Err() == nil; {
		once, cancel := context.WithTimeout(ctx, e.Deadline)
		r, err := e.Read(once)
		if err == nil {
			now := time.Now()
			if e.see(r, now); e.free(now) == 0 {
				if err = e.write(once, e.claim(now)); err == nil {
					cancel()
					return now, true
				}
			}
		}
		cancel()
		if err != nil && !errors.Is(err, ErrLost) {
			if !failed && ctx.Err() == nil {
				e.Logger.Warn("the record of who runs the controllers cannot be read or written, trying again", "error", err)
			}
			failed = true
			e.pause(ctx, e.Retry, nil)
			continue
		}
		failed = false
		// Several processes that wait for the same record do not ask for it all at once.
		wait := e.Retry + rand.N(e.Retry/2)
		if free := e.free(time.Now()); free > 0 {
			wait = min(wait, free)
		}
		e.pause(ctx, wait, e.Wake)
	}
	return sent, false
}

// pause waits for a time, for a wake-up, or for the end of ctx.
func (e *candidate) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// lead works until ctx ends or the record is lost. sent is when the claim was sent.
func (e *candidate) lead(ctx context.Context, sent time.Time) {
	work, stop := context.WithCancel(ctx)
	// The deadline stops the work, whatever a renewal waits for at that time.
	deadline := time.AfterFunc(time.Until(sent.Add(e.Deadline)), stop)
	defer deadline.Stop()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		e.Work(work)
	}()
	for work.Err() == nil {
		e.pause(work, e.Retry, nil)
		if work.Err() != nil {
			break
		}
		now := time.Now()
		err := e.renew(work, now)
		switch {
		case err == nil && deadline.Stop():
			deadline.Reset(e.Deadline - time.Since(now))
		case errors.Is(err, ErrLost):
			e.Logger.Warn("another server runs the controllers, although this one did", "leader", e.last.Leader)
			stop()
		case err != nil && work.Err() == nil:
			e.Logger.Warn("the record of who runs the controllers was not renewed, trying again", "error", err)
		}
	}
	stop()
	<-returned
	if ctx.Err() != nil {
		e.release(context.WithoutCancel(ctx))
	}
}

// renew renews the record. ErrLost means that another process leads: if the record was only changed, it is read and
// renewed again.
func (e *candidate) renew(ctx context.Context, now time.Time) error {
	for {
		err := e.write(ctx, e.claim(now))
		if !errors.Is(err, ErrLost) {
			return err
		}
		r, err := e.Read(ctx)
		if err != nil {
			return err
		}
		if e.see(r, time.Now()); r.Leader != e.Name {
			return ErrLost
		}
	}
}

// release gives the record back.
func (e *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.Deadline)
	defer cancel()
	for e.last.Leader == e.Name {
		next := e.last
		next.Leader, next.Duration, next.Renewed = "", time.Second, time.Now()
		err := e.write(ctx, next)
		if errors.Is(err, ErrLost) {
			var r Record
			if r, err = e.Read(ctx); err == nil {
				e.see(r, time.Now())
				continue
			}
		}
		if err != nil {
			e.Logger.Warn("the record of who runs the controllers was not given back", "error", err)
			return
		}
	}
}
