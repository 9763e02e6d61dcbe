// Package procs has a server that does one thing at a time do it on one processor.
//
// Go wakes an idle processor whenever a goroutine becomes ready to run, as there may be work for two. In HTTP/2 a request is
// handed through half a dozen goroutines of its connection, one after the other: each time another thread is woken, finds
// nothing or carries the request to another processor's cache, and goes to sleep again. For a client that waits for each
// answer that is a fifth of all the processor time (docs/decisions/0004-one-processor.md).
package procs

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/lull"
)

// calm is how long there must have been one thing to do at a time.
const calm = 200 * time.Millisecond

// Governor sets how many processors the process uses: all of them, or one. There may be one Governor in a process. The nil
// Governor does nothing.
type Governor struct {
	all   func() // use all of them
	pause *lull.Timer
	alone atomic.Bool // one processor is enough

	setting sync.Mutex // held while the number is brought in line with alone
	stopped bool       // it stays at all of them
}

// New makes a governor. It returns nil where there is nothing to be won: with one processor, or when the environment says how
// many there are to be.
func New() *Governor {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return nil
	}
	g := &Governor{all: runtime.SetDefaultGOMAXPROCS}
	g.pause = lull.New(calm, g.rest)
	return g
}

// Crowd says that there is something to do for more than one processor, now and probably for a while. Until it is called for the
// first time, nothing changes.
func (g *Governor) Crowd() {
	if g == nil {
		return
	}
	g.pause.Touch()
	if g.alone.CompareAndSwap(true, false) {
		go g.set() // it waits for a garbage collection that is under way
	}
}

// rest is called when there has been no crowd for a while.
func (g *Governor) rest() {
	g.alone.Store(true)
	g.set()
}

func (g *Governor) set() {
	g.setting.Lock()
	defer g.setting.Unlock()
	if g.alone.Load() && !g.stopped {
		runtime.GOMAXPROCS(1)
	} else {
		g.all()
	}
}

// Stop ends the governor, with all processors in use.
func (g *Governor) Stop() {
	if g == nil {
		return
	}
	g.pause.Stop()
	g.setting.Lock()
	g.stopped = true
	g.setting.Unlock()
	g.set()
}
