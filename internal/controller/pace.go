package controller

import "golang.org/x/time/rate"

// Thousands of deletes one after the other take all processors for as long as they last, and requests wait for their
// turn: with 10,000 objects in a namespace, GETs beside its deletion took three to six times as long (99th
// percentile), for half a second. So each of the controllers that write much writes maxWrites times a second at most,
// in bursts of burstWrites, as the clients of kube-controller-manager are limited by --kube-api-qps and
// --kube-api-burst. What few objects need is done at once.
const (
	maxWrites   = 5000
	burstWrites = 8
)

// newPace is the limit of the writes of one controller.
func newPace() *rate.Limiter { return rate.NewLimiter(maxWrites, burstWrites) }
