package fairness

import (
	"sync"
	"time"
)

// ratio is a histogram of the values that the ratio of a number of requests or seats to a limit has had, each weighted
// with the nanoseconds for which it lasted.
type ratio struct {
	bounds []float64
	limit  float64
	counts [16]uint64 // nanoseconds by bucket, not cumulative; the last one is of those above all bounds
	sum    float64

	// The number, its ratio and the bucket of the last period; -1: none.
	n      int
	value  float64
	bucket int
}

func newRatio(bounds []float64) ratio { return ratio{bounds: bounds, limit: 1, n: -1} }

// setLimit changes the limit from now on.
func (r *ratio) setLimit(limit int) { r.limit, r.n = float64(max(1, limit)), -1 }

// elapse notes that the number was n for so long until now.
func (r *ratio) elapse(n int, since time.Duration) {
	if n != r.n {
		r.n, r.value = n, float64(n)/r.limit
		r.bucket = 0
		for r.bucket < len(r.bounds) && r.value > r.bounds[r.bucket] {
			r.bucket++
		}
	}
	r.counts[r.bucket] += uint64(since)
	r.sum += r.value * float64(since)
}

// figure returns the histogram as it is when the number has been n for so long since the last call of elapse.
func (r ratio) figure(name string, n int, since time.Duration, labels ...string) Figure {
	r.elapse(n, since)
	f := Figure{Name: name, Labels: labels, Counts: make(map[float64]uint64, len(r.bounds)), Sum: r.sum}
	for i, bound := range r.bounds {
		f.Samples += r.counts[i]
		f.Counts[bound] = f.Samples
	}
	f.Samples += r.counts[len(r.bounds)]
	return f
}

// Buckets of ratios, as in the reference.
var (
	seatRatios    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	requestRatios = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	kindRatios    = []float64{0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	demandRatios  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
)

// The phases of a request, as the reference's metrics name them.
const (
	phaseWaiting = iota
	phaseExecuting
)

var (
	phaseNames = [...]string{"waiting", "executing"}
	kindNames  = [...]string{"readOnly", "mutating"}
)

// kinds counts the requests of all levels, those that read and those that write.
type kinds struct {
	mu      sync.Mutex
	last    time.Time
	numbers [2][2]int   // by phase and kind
	ratios  [2][2]ratio // to what all levels may have of that phase
}

func newKinds(now time.Time) *kinds {
	k := &kinds{last: now}
	for phase := range k.ratios {
		for kind := range k.ratios[phase] {
			k.ratios[phase][kind] = newRatio(kindRatios)
		}
	}
	return k
}

// elapse notes that the numbers have been the same until now. Callers hold the locks of different levels: their times
// may be out of order.
func (k *kinds) elapse(now time.Time) {
	since := now.Sub(k.last)
	if since <= 0 {
		return
	}
	k.last = now
	for phase := range k.ratios {
		for kind := range k.ratios[phase] {
			k.ratios[phase][kind].elapse(k.numbers[phase][kind], since)
		}
	}
}

// add changes the number of requests of a phase and a kind.
func (k *kinds) add(now time.Time, phase int, t *Ticket, delta int) {
	kind := 0
	if t.mutating {
		kind = 1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.elapse(now)
	k.numbers[phase][kind] += delta
}

// setLimits changes how many requests may wait and execute.
func (k *kinds) setLimits(now time.Time, waiting, executing int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.elapse(now)
	for kind := range kindNames {
		k.ratios[phaseWaiting][kind].setLimit(waiting)
		k.ratios[phaseExecuting][kind].setLimit(executing)
	}
}

func (k *kinds) figures(now time.Time) (all []Figure) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.elapse(now)
	for phase := range k.ratios {
		for kind := range k.ratios[phase] {
			all = append(all, k.ratios[phase][kind].figure("read_vs_write_current_requests", k.numbers[phase][kind], 0,
				phaseNames[phase], kindNames[kind]))
		}
	}
	return all
}
