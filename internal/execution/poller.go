package execution

import (
	"os"
	"sync"
)

// poller makes Go's scheduler look at the network. There is no call for that. But it resumes the reader of a pipe as it
// resumes the reader of a connection: when it looks for what has arrived, which it does as soon as nothing is ready to
// run.
type poller struct {
	open    sync.Once
	in, out *os.File // nil if there are no more file descriptors; the garbage collector closes them
}

// wait returns when the scheduler has looked at the network. The readers of what had arrived before are ready then.
// Without a pipe it returns at once. It must not be called at the same time as itself.
func (p *poller) wait() {
	p.open.Do(func() {
		if in, out, err := os.Pipe(); err == nil {
			p.in, p.out = in, out
		}
	})
	if p.in == nil {
		return
	}
	// This goroutine has to wait before there is something to read: a read of what is there does not wait. On one
	// processor the new goroutine runs when this one waits; on several, one that runs it at once was idle, and has
	// looked at the network.
	go p.out.Write([]byte{0})
	p.in.Read(make([]byte, 1))
}
