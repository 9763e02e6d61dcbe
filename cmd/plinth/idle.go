package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A server that has nothing to do keeps the memory that its last requests needed: the collector lets the heap grow to
// twice of what is in use, and runs every two minutes then. So when a period passes in which hardly anything is
// allocated, the documents of discovery are dropped; then garbage and unused pages are given back to the system. This
// happens once, and takes some 30 ms of a processor, for which nobody waits. Only the program does this: a server that
// is a library leaves the memory of its process alone.
const (
	idlePeriod = 20 * time.Second
	idleBytes  = 1 << 20 // at most allocated in an idle period; a request takes some 20 kB
)

// idleness finds the first idle period after work.
type idleness struct {
	allocated uint64 // in total, at the end of the last period
	worked    bool   // since memory was given back
}

// passed notes the end of a period, by which the process has allocated so many bytes, and reports whether memory is to
// be given back.
func (i *idleness) passed(allocated uint64) bool {
	idle := allocated-i.allocated <= idleBytes
	i.allocated = allocated
	giveBack := idle && i.worked
	i.worked = !idle
	return giveBack
}

// giveBackMemory runs until the context ends. drop makes garbage of what can be made again.
func giveBackMemory(ctx context.Context, drop func()) {
	var idle idleness
	total := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	periods := time.NewTicker(idlePeriod)
	defer periods.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-periods.C:
		}
		metrics.Read(total)
		if idle.passed(total[0].Value.Uint64()) {
			drop()
			runtime.GC() // what a sync.Pool has survives one collection
			debug.FreeOSMemory()
		}
	}
}
