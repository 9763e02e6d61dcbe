package webhook

import (
	"context"
	"sync/atomic"
	"time"
)

// Waiting is how long a request has waited for webhooks: those that may change the object are called one after the
// other, those that check it at the same time.
type Waiting struct{ mutating, validating atomic.Int64 }

type waitingKey struct{}

// WaitingKey is the key under which the context of a request has its *Waiting; it need not have one.
var WaitingKey any = waitingKey{}

// Waited adds the time of a call of a webhook to that of the request of a context.
func Waited(ctx context.Context, mutating bool, took time.Duration) {
	t, ok := ctx.Value(WaitingKey).(*Waiting)
	switch {
	case !ok:
	case mutating:
		t.mutating.Add(int64(took))
	default:
		for last := t.validating.Load(); int64(took) > last; last = t.validating.Load() {
			if t.validating.CompareAndSwap(last, int64(took)) {
				return
			}
		}
	}
}

// Total is how long the request has waited for all of them.
func (t *Waiting) Total() time.Duration {
	return time.Duration(t.mutating.Load() + t.validating.Load())
}
