package fairness

import (
	"math"
	"time"
)

// demand integrates the number of seats that a level wants (in use or waited for) over time. It has the moments from
// which the mean and the standard deviation of a period follow:
//
//	seconds = ∫ dt    sum = ∫ x dt    squares = ∫ x² dt
type demand struct {
	last                  time.Time
	x, highest            float64
	seconds, sum, squares float64
}

// set changes the number of seats.
func (d *demand) set(now time.Time, x float64) {
	d.update(now)
	d.x = x
	d.highest = max(d.highest, x)
}

func (d *demand) update(now time.Time) {
	dt := now.Sub(d.last).Seconds()
	d.last = now
	d.seconds += dt
	d.sum += d.x * dt
	d.squares += d.x * d.x * dt
}

// period is what a demand was like since the last call of reset.
type period struct {
	seconds, mean, deviation, highest float64
}

// reset returns the figures of the period that ends now, and begins another one.
func (d *demand) reset(now time.Time) period {
	d.update(now)
	p := period{seconds: d.seconds, highest: d.highest}
	if d.seconds > 0 {
		p.mean = d.sum / d.seconds
		if variance := d.squares/d.seconds - p.mean*p.mean; variance > 0 { // rounding may make it negative
			p.deviation = math.Sqrt(variance)
		}
	}
	d.seconds, d.sum, d.squares, d.highest = 0, 0, 0, d.x
	return p
}
