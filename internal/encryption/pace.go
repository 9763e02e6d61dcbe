package encryption

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// pace is whether a plugin answers in time, for those that cannot wait for one that does not.
//
// The problem: what follows the changes of another process decrypts values in their order, and all that comes after a
// value waits with it. A plugin that hangs would hold up everything, of every type, for its time-out at each new key.
// But not to wait at all would make every value with a new key unreadable for a moment, as each takes one call. So a
// caller that is in a hurry says by the deadline of its context how long it waits. It waits that long for the first
// call that hangs, and for none after it, until a call has succeeded:
//
//	the callers in a hurry wait for one deadline, from when a plugin begins to hang until it answers again
//
// What they have not waited for is an error, and is asked for again by a caller that has the time (store.Recover).
type pace struct {
	timeout time.Duration // of a call
	slow    atomic.Bool   // a call took too long for its caller, and none has succeeded since
}

// errSlow is the error for those that are in a hurry.
var errSlow = errors.New("the plugin is slow; it is asked again in the background")

// hurried says whether a caller waits for less than a call may take.
func (p *pace) hurried(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < p.timeout
}

// skips says whether a caller does not wait.
func (p *pace) skips(ctx context.Context) bool { return p.slow.Load() && p.hurried(ctx) }
