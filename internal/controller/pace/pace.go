// Package pace says how fast controllers work: how many writes they make in a second, how long they wait after a
// failure, and how much they have to do.
//
// Problem: a controller that deletes thousands of objects uses all processors meanwhile, and requests wait. With
// 10,000 objects in a namespace, the 99th percentile of GETs during its deletion was three to six times as high, for
// half a second. A lower priority is not possible: all goroutines of a process have the same.
//
// So each controller that writes much makes at most maxWrites writes per second, in bursts of at most burstWrites.
// (The clients of kube-controller-manager are limited by --kube-api-qps and --kube-api-burst for the same reason.) The
// burst is small because requests wait for a whole burst; a few objects are deleted without delay anyway.
package pace

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

const (
	maxWrites   = 5000
	burstWrites = 8
)

// New returns the limiter of the writes of one controller.
func New() *rate.Limiter { return rate.NewLimiter(maxWrites, burstWrites) }

// After an error the next attempt follows after MinRetry, and twice as long each time, up to MaxRetry, as in the
// reference.
const (
	MinRetry = time.Second
	MaxRetry = time.Minute
)

// Attempts is how often a write is repeated at once while it ends with a conflict.
const Attempts = 10

// Retry is how long to wait after a number of failures in a row.
func Retry(failed int) time.Duration {
	return min(MaxRetry, MinRetry<<min(failed-1, 6))
}

// Pause waits, and returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
