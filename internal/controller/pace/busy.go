package pace

import "sync/atomic"

// Busy counts what controllers have to do at this moment. What waits for a time to come, such as a second attempt after
// an error, is not counted; neither are events that a controller has not received yet, which the store counts (Cursors
// in its Stats). A nil Busy counts nothing.
type Busy struct{ tasks atomic.Int64 }

// Add counts n tasks more, or fewer.
func (b *Busy) Add(n int64) {
	if b != nil {
		b.tasks.Add(n)
	}
}

// Note counts one thing that there is to do or not: counted says whether it is counted, and becomes is.
func (b *Busy) Note(counted *bool, is bool) {
	switch {
	case is && !*counted:
		b.Add(1)
	case !is && *counted:
		b.Add(-1)
	}
	*counted = is
}

// Tasks is how much there is to do.
func (b *Busy) Tasks() int64 { return b.tasks.Load() }
