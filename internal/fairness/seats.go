package fairness

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// want is what a level wants when the seats are divided: at least low, at most high, and between these in proportion to
// target.
type want struct{ target, low, high float64 }

// smallestTarget is the least target with which the division computes, so that no level is left out for all time.
const smallestTarget = 0.001

// tolerance is by how much sums may differ because of rounding.
const tolerance = 1e-7

var errSums = errors.New("the bounds do not allow the sum")

// divide divides sum among those who want, each in proportion to its target as far as the bounds allow. There is one
// factor f for which the parts have the sum:
//
//	part = min(high, max(low, f · target))    Σ part = sum
//
// The sum grows with f, linearly between the values of f at which a part meets one of its bounds. So f is found by
// walking over these values in ascending order.
func divide(sum int, wants []want) (parts []float64, f float64, err error) {
	total := float64(sum)
	var lows, highs, targets float64
	type bound struct{ at, slope float64 }
	bounds := make([]bound, 0, 2*len(wants))
	firstLow, lastLow, firstHigh, lastHigh := math.MaxFloat32, 0.0, math.MaxFloat32, 0.0
	adjusted := slices.Clone(wants)
	for i := range adjusted {
		w := &adjusted[i]
		if w.low < 0 || w.target < w.low || w.high < w.low {
			return nil, 0, fmt.Errorf("level %d of the division wants %v of %v to %v", i, w.target, w.low, w.high)
		}
		w.target = max(w.target, smallestTarget)
		lows, highs, targets = lows+w.low, highs+w.high, targets+w.target
		low, high := w.low/w.target, w.high/w.target
		firstLow, lastLow = min(firstLow, low), max(lastLow, low)
		firstHigh, lastHigh = min(firstHigh, high), max(lastHigh, high)
		bounds = append(bounds, bound{low, w.target}, bound{high, -w.target})
	}
	parts = make([]float64, len(wants))
	fill := func(f float64) ([]float64, float64, error) {
		for i, w := range adjusted {
			parts[i] = max(w.low, min(w.high, f*w.target))
		}
		return parts, f, nil
	}
	switch {
	case lows-total > tolerance || total-highs > tolerance:
		return nil, 0, errSums
	case sum == 0:
		return parts, 0, nil
	case lows-total > -tolerance: // nothing beyond the lower bounds
		for i, w := range adjusted {
			parts[i] = w.low
		}
		return parts, firstLow, nil
	case total-highs > -tolerance:
		for i, w := range adjusted {
			parts[i] = w.high
		}
		return parts, lastHigh, nil
	}
	if f := total / targets; lastLow <= f && f <= firstHigh { // no bound matters
		return fill(f)
	}
	slices.SortFunc(bounds, func(a, b bound) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	// Invariant: the parts for f have the sum soFar, which grows by slope per unit of f until the next bound.
	f, soFar, slope := firstLow, lows, 0.0
	for _, b := range bounds {
		if b.at > f {
			if slope > 0 {
				if next := f + (total-soFar)/slope; next <= b.at {
					return fill(next)
				}
			}
			soFar += (b.at - f) * slope
			f = b.at
		}
		slope += b.slope
	}
	return fill(f)
}
