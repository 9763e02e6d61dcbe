package execution

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// SPEC: AUTH-8
// While processors always have something to do, the reader of what has arrived is resumed because of wait. One
// processor, and a goroutine that is always ready: without wait it takes until Go looks at the network by itself.
func TestPollerResumesReaders(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	p := new(poller)
	p.wait() // makes its pipe
	for round := range 20 {
		done := make(chan struct{})
		go func() {
			if _, err := in.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			close(done)
		}()
		for range 3 {
			runtime.Gosched() // until it waits
		}
		if _, err := out.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if !runs(p, done) {
			t.Errorf("round %d: the reader has not run", round)
			<-done
		}
	}
}

// runs calls wait a few times, and says whether done is closed then. Once suffices, unless the system stops the thread
// between the two steps of wait for so long that Go runs the second one first.
func runs(p *poller, done chan struct{}) bool {
	for range 5 {
		p.wait()
		for range 10 {
			runtime.Gosched() // the reader is ready
		}
		select {
		case <-done:
			return true
		default:
		}
	}
	return false
}

// SPEC: AUTH-8
// Once others have come, and there are more requests than places, no place is given until the network has been looked
// at, whether it is one that comes free or was free before. What has arrived by then is served in the order that holds
// for all. After that, places are given for as long as the look has taken.
func TestLook(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		var looks atomic.Int32
		looked := make(chan struct{})
		s.l.polled = func() {
			looks.Add(1)
			<-looked
		}
		time.Sleep(time.Millisecond)
		b := s.share.Band()
		s.start("other0", b, 2, takes(0))
		for i, name := range []string{"flood0", "flood1", "flood2", "flood3"} {
			s.start(name, b, 1, takes(time.Millisecond))
			if n := int(looks.Load()); n != min(i, 1) { // with flood1 there are more than places
				t.Fatalf("%d looks after %s", n, name)
			}
		}
		time.Sleep(2 * time.Millisecond) // flood0 is done
		s.start("other1", b, 2, takes(time.Millisecond))
		s.wants("other0", "flood0")
		if f := s.l.Figures(); f.Held != 0 || f.Waiting != 4 {
			t.Errorf("during the look: %+v", f)
		}
		looked <- struct{}{}
		s.wants("other0", "flood0", "flood1")
		time.Sleep(1500 * time.Microsecond)
		s.wants("other0", "flood0", "flood1", "other1")
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks within the time that the first one has taken", n)
		}
		time.Sleep(time.Millisecond)
		s.wants("other0", "flood0", "flood1", "other1")
		if n := looks.Load(); n != 2 {
			t.Errorf("%d looks", n)
		}
		close(looked)
		s.wait.Wait()
		s.wants("other0", "flood0", "flood1", "other1", "flood2", "flood3")
	})
}

// SPEC: AUTH-8
// A request that yields during a look hands its place to nobody.
func TestYieldDuringLook(t *testing.T) {
	inScene(t, 1, 1, func(s *scene) {
		looked := make(chan struct{})
		s.l.polled = func() { <-looked }
		time.Sleep(time.Millisecond)
		b := s.share.Band()
		s.start("other", b, 2, takes(0))
		s.start("long", b, 1, func(ctx context.Context, p *Place) {
			time.Sleep(time.Millisecond)
			if err := p.Yield(ctx); err != nil {
				t.Error(err)
			}
			s.note("long again")
		})
		s.start("next", b, 1, takes(0))
		time.Sleep(2 * time.Millisecond)
		s.wants("other", "long")
		if f := s.l.Figures(); f.Held != 0 || f.Waiting != 2 {
			t.Errorf("after the yield: %+v", f)
		}
		close(looked)
		s.wait.Wait()
		s.wants("other", "long", "long again", "next")
	})
}
