package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/election"
)

// board has the record, as a store that several processes share. Its clock of revisions is its own.
type board struct {
	mu     sync.Mutex
	record election.Record
	writes int
	wakers []chan struct{}
}

var errCut = errors.New("the connection is cut")

// link is how one process reaches the board.
type link struct {
	*board
	mu    sync.Mutex
	cut   bool          // no request reaches the board
	lost  bool          // no answer comes back
	delay time.Duration // of a request, before it reaches the board
	late  time.Duration // of the answer
	skew  time.Duration // of the clock of the process
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// travel waits as long as a request takes to the board.
func (l *link) travel(ctx context.Context) error {
	l.mu.Lock()
	cut, delay := l.cut, l.delay
	l.mu.Unlock()
	if cut {
		<-ctx.Done()
		return errCut
	}
	time.Sleep(delay)
	return nil
}

func (l *link) back() error {
	l.mu.Lock()
	late, lost := l.late, l.lost
	l.mu.Unlock()
	time.Sleep(late)
	if lost {
		return errCut
	}
	return nil
}

func (l *link) read(ctx context.Context) (election.Record, error) {
	if err := l.travel(ctx); err != nil {
		return election.Record{}, err
	}
	l.board.mu.Lock()
	r := l.record
	l.board.mu.Unlock()
	return r, l.back()
}

func (l *link) write(ctx context.Context, r election.Record) (int64, error) {
	if err := l.travel(ctx); err != nil {
		return 0, err
	}
	written, err := l.put(r)
	if err == nil {
		err = l.back()
	}
	return written, err
}

func (l *link) put(r election.Record) (int64, error) {
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	if r.Revision != l.record.Revision {
		return 0, election.ErrLost
	}
	l.writes++
	r.Renewed, r.Acquired = r.Renewed.Add(l.skew), r.Acquired.Add(l.skew)
	r.Revision++
	l.record = r
	for _, w := range l.wakers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return r.Revision, nil
}

// log records who works.
type log struct {
	t      *testing.T
	mu     sync.Mutex
	at     map[string]bool
	spans  []string // who has begun, in order
	begun  time.Time
	linger time.Duration // how long work takes to return
}

func (w *log) work(name string) func(context.Context) {
	return func(ctx context.Context) {
		w.mu.Lock()
		if len(w.at) > 0 {
			w.t.Errorf("%s works beside %v", name, w.at)
		}
		w.at[name] = true
		w.spans, w.begun = append(w.spans, name), time.Now()
		w.mu.Unlock()
		<-ctx.Done()
		time.Sleep(w.linger)
		w.mu.Lock()
		delete(w.at, name)
		w.mu.Unlock()
	}
}

func (w *log) leaders() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.spans...)
}

func (w *log) now() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.at {
		names = append(names, name)
	}
	return names
}

// process takes part until it is stopped, with a link of its own. With wake, it is told of changes of the record.
func (b *board) process(w *log, name string, wake bool) (l *link, stop func()) {
	l = &link{board: b}
	ctx, cancel := context.WithCancel(context.Background())
	c := election.Config{Name: name, Read: l.read, Write: l.write, Work: w.work(name),
		Logger: slog.New(slog.DiscardHandler)}
	if wake {
		woken := make(chan struct{}, 1)
		b.mu.Lock()
		b.wakers = append(b.wakers, woken)
		b.mu.Unlock()
		c.Wake = woken
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		election.Run(ctx, c)
	}()
	return l, func() { cancel(); <-done }
}

func newLog(t *testing.T) *log { return &log{t: t, at: map[string]bool{}} }

// SPEC: STORE-2
func TestOneOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := &board{}, newLog(t)
		_, stopA := b.process(w, "a", true)
		synctest.Wait()
		_, stopB := b.process(w, "b", true)
		time.Sleep(time.Hour)
		if got := w.leaders(); len(got) != 1 || got[0] != "a" {
			t.Errorf("%v have worked", got)
		}
		if b.writes < 1700 || b.writes > 1801 {
			t.Errorf("%d writes in an hour, with a renewal each two seconds", b.writes)
		}
		// The one that is asked to stop gives the record back, and the next one begins at once.
		at := time.Now()
		stopA()
		synctest.Wait()
		if got := w.now(); len(got) != 1 || got[0] != "b" || time.Since(at) > 0 {
			t.Errorf("%v after %s", got, time.Since(at))
		}
		if r := b.record; r.Leader != "b" || r.Transitions < 1 || r.Duration != 15*time.Second {
			t.Errorf("the record is %+v", r)
		}
		stopB()
		if r := b.record; r.Leader != "" {
			t.Errorf("%s still leads", r.Leader)
		}
	})
}

// A leader that is killed says nothing: it is replaced after Duration, however the clocks of the two differ.
func TestKill(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b, w := &board{}, newLog(t)
			w.linger = 4 * time.Second
			a, stopA := b.process(w, "a", false)
			a.set(func(l *link) { l.skew = skew })
			time.Sleep(time.Second)
			_, stopB := b.process(w, "b", false)
			time.Sleep(time.Minute)
			killed := time.Now()
			a.set(func(l *link) { l.cut = true })
			time.Sleep(20 * time.Second)
			if got := w.now(); len(got) != 1 || got[0] != "b" {
				t.Fatalf("%v works", got)
			}
			if took := w.begun.Sub(killed); took < 12*time.Second || took > 18*time.Second {
				t.Errorf("the next one began after %s", took)
			}
			// The first one comes back, and finds another leader.
			a.set(func(l *link) { l.cut = false })
			time.Sleep(time.Minute)
			if got := w.leaders(); len(got) != 2 {
				t.Errorf("%v", got)
			}
			stopA()
			stopB()
		})
	}
}

// A renewal whose answer is lost was made or not: the leader stops at its deadline, and takes the record again.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := &board{}, newLog(t)
		a, stop := b.process(w, "a", false)
		time.Sleep(10 * time.Second)
		a.set(func(l *link) { l.lost = true })
		time.Sleep(11 * time.Second)
		if got := w.now(); len(got) != 0 {
			t.Errorf("%v works without a renewal", got)
		}
		a.set(func(l *link) { l.lost = false })
		time.Sleep(3 * time.Second)
		if got := w.now(); len(got) != 1 {
			t.Errorf("%v works", got)
		}
		stop()
	})
}

// Two may not work at the same time, whatever happens to the requests of five processes that come and go.
func TestNeverTwo(t *testing.T) {
	for seed := range int64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewSource(seed))
				b, w := &board{}, newLog(t)
				w.linger = time.Duration(random.Intn(4900)) * time.Millisecond
				links, stops := make([]*link, 5), make([]func(), 5)
				n := 0
				start := func(i int) {
					n++
					links[i], stops[i] = b.process(w, fmt.Sprint(i, "-", n), random.Intn(2) == 0)
					skew := time.Duration(random.Intn(7200)-3600) * time.Second
					links[i].set(func(l *link) { l.skew = skew })
				}
				for i := range links {
					start(i)
				}
				for range 300 {
					i := random.Intn(len(links))
					switch random.Intn(7) {
					case 0:
						links[i].set(func(l *link) { l.cut = !l.cut })
					case 1:
						links[i].set(func(l *link) { l.lost = !l.lost })
					case 2, 3:
						delay := time.Duration(random.Intn(6000)) * time.Millisecond
						late := time.Duration(random.Intn(6000)) * time.Millisecond
						links[i].set(func(l *link) { l.delay, l.late = delay, late })
					case 4:
						links[i].set(func(l *link) { l.cut, l.lost, l.delay, l.late = false, false, 0, 0 })
					case 5:
						stops[i]()
						start(i)
					}
					time.Sleep(time.Duration(random.Intn(20000)) * time.Millisecond)
				}
				for i := range links {
					links[i].set(func(l *link) { l.cut, l.lost, l.delay, l.late = false, false, 0, 0 })
				}
				time.Sleep(30 * time.Second)
				if got := w.now(); len(got) != 1 {
					t.Errorf("%v works, after everything is well again", got)
				}
				if len(w.leaders()) < 5 {
					t.Errorf("only %v have worked", w.leaders())
				}
				for _, stop := range stops {
					stop()
				}
			})
		})
	}
}
