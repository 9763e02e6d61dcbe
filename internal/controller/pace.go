package controller

import "golang.org/x/time/rate"

// The pace of controllers.
//
// Problem: a controller that deletes thousands of objects uses all processors meanwhile, and requests wait. With
// 10,000 objects in a namespace, the 99th percentile of GETs during its deletion was three to six times as high, for
// half a second. A lower priority is not possible: all goroutines of a process have the same.
//
// So each controller that writes much makes at most maxWrites writes per second, in bursts of at most burstWrites.
// (The clients of kube-controller-manager are limited by --kube-api-qps and --kube-api-burst for the same reason.) The
// burst is small because requests wait for a whole burst; a few objects are deleted without delay anyway.
const (
	maxWrites   = 5000
	burstWrites = 8
)

// newPace returns the limiter of one controller.
func newPace() *rate.Limiter { return rate.NewLimiter(maxWrites, burstWrites) }
