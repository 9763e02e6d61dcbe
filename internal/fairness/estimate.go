package fairness

import (
	"sync"
	"time"
)

// Estimates of the work of requests, as those of the reference with its gate SizeBasedListCostEstimate, which is on.
//
// The problem: a list of all Pods takes a thousand times as much memory and time as a GET, and its size is known only
// when it is done. If each request took one seat, the seats of a level would not bound what its requests take. So the
// bytes of a list are estimated from the number of objects of its type and their average size:
//
//	seats = ⌈ bytes / bytesPerSeat ⌉, at least 1 and at most widest
//
// A list that the reference reads from etcd is in its memory as a whole. With a limit and a selector, it may read half
// of all objects to find those of one page. A list from memory is streamed, and takes memoryOfList at most. Plinth
// streams both, and keeps to the reference's estimates, so that limits configured for one mean the same for the other.
//
// A write is small, but after its answer it is sent to every watch that may be interested. It has one seat while it
// executes; then FinalSeats for FinalTime, of which the product is timePerEventSeat for every watchersPerSeat watches.

const (
	bytesPerSeat = 100_000
	// memoryOfList is what a list takes at most that is read from memory and streamed.
	memoryOfList = 1_000_000
	// largestObject is the assumed size of objects of which no size is known.
	largestObject    = 1_500_000
	mostListSeats    = 100
	mostWriteSeats   = 10
	watchersPerSeat  = 10
	timePerEventSeat = 5 * time.Millisecond
)

// Stats are the figures of the objects of a type.
type Stats struct {
	Objects int64
	Bytes   int64 // of one object on average; 0: not known
}

// List is a list, or a watch, as far as its work depends on it.
type List struct {
	Watch       bool
	SendInitial bool
	Invalid     bool // its parameters cannot be parsed
	Single      bool // one object, by its name
	Selects     bool // by a selector
	Limit       int64
	Revision    string // resourceVersion
	Match       string // resourceVersionMatch
	Continue    string
}

// quick says whether it is a watch without initial events.
func (l *List) quick() bool {
	return l.Watch && !l.SendInitial && l.Revision != "" && l.Revision != "0"
}

// stored says whether the reference reads the list from its storage, and not from memory.
func (l *List) stored() bool {
	if l.Watch {
		return false
	}
	switch l.Match {
	case "NotOlderThan":
		return false
	case "":
		return l.Continue != "" || l.Limit > 0 && l.Revision != "" && l.Revision != "0"
	}
	return true
}

// Work estimates a list of objects with these figures; nil: the type is not one of this server. widest is that of the
// class of the request.
func (l *List) Work(stats func() *Stats, widest int) Work {
	if widest == 0 || widest > mostListSeats {
		widest = mostListSeats
	}
	if l.Invalid {
		return Work{Seats: widest}
	}
	if l.quick() {
		return Work{Seats: 1}
	}
	known := stats()
	if known == nil {
		return Work{Seats: 1}
	}
	size := known.Bytes
	if size <= 0 && known.Objects != 0 {
		size = largestObject
	}
	n := known.Objects
	if l.Limit > 0 {
		n = min(n, l.Limit)
	}
	switch {
	case l.Single:
		n = 1
	case l.stored() && l.Selects:
		n = max(n, known.Objects/2)
	}
	bytes := n * size
	if !l.stored() {
		bytes = min(bytes, memoryOfList)
	}
	return Work{Seats: min(max(1, int((bytes+bytesPerSeat-1)/bytesPerSeat)), widest)}
}

// WriteWork estimates a write that so many watches are interested in.
func WriteWork(watchers, widest int) Work {
	if widest == 0 || widest > mostWriteSeats {
		widest = mostWriteSeats
	}
	w := Work{Seats: 1, watched: true, watchers: watchers}
	if watchers >= watchersPerSeat {
		seats := (watchers + watchersPerSeat - 1) / watchersPerSeat
		final := work(float64(seats), timePerEventSeat)
		w.FinalSeats = min(seats, widest)
		w.FinalTime = final.per(w.FinalSeats)
	}
	return w
}

// Watched is what a watch is about: all objects of a resource, those in a namespace, or one.
type Watched struct{ Group, Resource, Namespace, Name string }

// Watchers counts watches. The zero value is ready.
type Watchers struct {
	mu    sync.Mutex
	count map[Watched]int
}

// Add counts a watch, or with -1 its end.
func (w *Watchers) Add(of Watched, delta int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = map[Watched]int{}
	}
	if w.count[of] += delta; w.count[of] == 0 {
		delete(w.count, of)
	}
}

// Interested returns how many watches may be interested in a write.
func (w *Watchers) Interested(in Watched) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.count) == 0 {
		return 0
	}
	of := Watched{Group: in.Group, Resource: in.Resource}
	n := w.count[of]
	if of.Namespace = in.Namespace; in.Namespace != "" {
		n += w.count[of]
	}
	if of.Name = in.Name; in.Name != "" {
		n += w.count[of]
	}
	return n
}
