package execution

import (
	"context"
	"sync/atomic"
	"time"
)

// HookTime is how long a request has waited for webhooks: those that may change the object are called one after the
// other, those that check it at the same time.
type HookTime struct{ mutating, validating atomic.Int64 }

// hookTimeKey is the key of HookTime in a context.
type hookTimeKey struct{}

// HookTimeKey is the key under which the context of a request has its *HookTime; it need not have one.
var HookTimeKey any = hookTimeKey{}

// Waited adds the time of a call of a webhook to that of the request of a context.
func Waited(ctx context.Context, mutating bool, took time.Duration) {
	t, ok := ctx.Value(HookTimeKey).(*HookTime)
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
func (t *HookTime) Total() time.Duration {
	return time.Duration(t.mutating.Load() + t.validating.Load())
}
