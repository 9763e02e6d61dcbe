package fairness

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// QueueDump is one queue for the debugging pages.
type QueueDump struct {
	Pending, Executing, SeatsInUse int
	NextR                          SeatSeconds
	SeatsSum, MaxSum               int // of those pending
	WorkSum                        SeatSeconds
}

// Dump returns the state of the queues.
func (q *Queues) Dump() []QueueDump {
	all := make([]QueueDump, len(q.all))
	for i, one := range q.all {
		if one == nil {
			continue
		}
		all[i] = QueueDump{
			Pending: one.waiting.n, Executing: one.executing.n, SeatsInUse: one.seats, NextR: one.nextR,
			SeatsSum: one.waitingSeats, MaxSum: one.waitingMax, WorkSum: one.waitingWork,
		}
	}
	return all
}

// page writes a table in the form of the reference's debugging pages.
type page struct{ *tabwriter.Writer }

func newPage(to io.Writer) page { return page{tabwriter.NewWriter(to, 8, 0, 1, ' ', 0)} }

func (p page) row(columns ...any) {
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = fmt.Sprint(c)
	}
	fmt.Fprintln(p, strings.Join(texts, ",\t"))
}

// every calls do for each level, by name, under the lock of the level.
func (f *Fairness) every(do func(*Level)) {
	f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.sorted() {
		l.mu.Lock()
		do(l)
		l.mu.Unlock()
	}
}

// DumpLevels writes the page of priority levels.
func (f *Fairness) DumpLevels(to io.Writer) error {
	p := newPage(to)
	p.row("PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
		"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests")
	f.every(func(l *Level) {
		q := l.queues
		var executed uint64
		for _, u := range l.uses {
			executed += u.executed
		}
		p.row(l.Name, len(q.backlogs), q.Idle(), l.quiescing, q.waiting, q.executing, executed, q.refused, 0, q.timedOut)
	})
	return p.Flush()
}

// DumpQueues writes the page of queues.
func (f *Fairness) DumpQueues(to io.Writer) error {
	p := newPage(to)
	p.row("PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
		"InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
	f.every(func(l *Level) {
		if l.spec.exempt { // it has queues in a plane alone, which the reference does not show
			return
		}
		for i, q := range l.queues.Dump() {
			p.row(l.Name, i, q.Pending, q.Executing, q.SeatsInUse, q.NextR, q.SeatsSum, q.MaxSum, q.WorkSum)
		}
	})
	return p.Flush()
}

// DumpRequests writes the page of requests, with details on demand.
func (f *Fairness) DumpRequests(to io.Writer, details bool) error {
	p := newPage(to)
	head := []any{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher",
		"ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		head = append(head, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	p.row(head...)
	f.every(func(l *Level) {
		list := func(queue int, all *tickets, waiting bool) {
			i := -1
			for t := all.first; t != nil; t = t.next {
				if waiting {
					i++
				}
				p.row(t.row(l, queue, i, details)...)
			}
		}
		for i, q := range l.queues.all {
			if q == nil {
				continue
			}
			list(i, &q.waiting, true)
			list(i, &q.executing, false)
		}
		list(-1, &l.queues.unqueued, false)
	})
	return p.Flush()
}

// row is the row of a request.
func (t *Ticket) row(l *Level, queue, index int, details bool) []any {
	at := func(when time.Time) string { return when.UTC().Format(time.RFC3339Nano) }
	row := []any{l.Name, t.use.schema, queue, index, t.flow, at(t.arrived), t.Work.Seats, t.Work.FinalSeats,
		t.Work.FinalTime, at(t.started)}
	if a := t.about; details && a != nil {
		version := a.Version
		if a.Group != "" {
			version = a.Group + "/" + a.Version
		}
		row = append(row, a.User.Name, a.Verb, a.Path, a.Namespace, a.Name, version, a.Resource, a.Subresource)
	}
	return row
}

// Figure is a value of a metric: a number, or a histogram with the counts of its buckets, which are cumulative.
type Figure struct {
	Name    string // without the prefix of all metrics of the subsystem
	Labels  []string
	Value   float64
	Counts  map[float64]uint64 // nil: a number
	Samples uint64
	Sum     float64
}

// Figures returns the current values of all metrics.
func (f *Fairness) Figures() (all []Figure) {
	yield := func(one Figure) { all = append(all, one) }
	f.every(func(l *Level) {
		number := func(name string, value float64, labels ...string) {
			yield(Figure{Name: name, Labels: append([]string{l.Name}, labels...), Value: value})
		}
		number("nominal_limit_seats", float64(l.nominal))
		number("lower_limit_seats", float64(l.least))
		number("upper_limit_seats", float64(l.most))
		number("current_limit_seats", float64(l.current))
		number("demand_seats_high_watermark", l.last.highest)
		number("demand_seats_average", l.last.mean)
		number("demand_seats_stdev", l.last.deviation)
		number("demand_seats_smoothed", l.smoothed)
		number("target_seats", l.target)
		number("current_r", l.queues.r.float())
		for _, one := range l.queues.Figures(time.Now()) {
			one.Labels = append([]string{l.Name}, one.Labels...)
			yield(one)
		}
		for _, u := range l.sortedUses() {
			number("dispatched_requests_total", float64(u.executed), u.schema)
			for reason, n := range u.refused {
				if n > 0 {
					number("rejected_requests_total", float64(n), u.schema, refusalReasons[reason])
				}
			}
			if u.tight > 0 {
				number("request_dispatch_no_accommodation_total", float64(u.tight), u.schema)
			}
			number("current_inqueue_requests", float64(u.waiting), u.schema)
			number("current_inqueue_seats", float64(u.waitingSeats), u.schema)
			number("current_executing_requests", float64(u.executing), u.schema)
			number("current_executing_seats", float64(u.seats), u.schema)
			counts := func(name string, h *histogram, bounds []float64, labels ...string) {
				if h.n > 0 {
					yield(h.figure(name, bounds, append([]string{l.Name, u.schema}, labels...)))
				}
			}
			counts("request_wait_duration_seconds", &u.waits[0], secondBuckets, "false")
			counts("request_wait_duration_seconds", &u.waits[1], secondBuckets, "true")
			counts("request_execution_seconds", &u.regular, secondBuckets, "regular")
			counts("request_execution_seconds", &u.watches, secondBuckets, "watch")
			counts("work_estimated_seats", &u.estimates, seatBuckets)
			counts("request_queue_length_after_enqueue", &u.lengths, lengthBuckets)
			counts("watch_count_samples", &u.watchers, watchBuckets)
		}
	})
	f.mu.Lock()
	fraction := f.fraction
	f.mu.Unlock()
	yield(Figure{Name: "seat_fair_frac", Value: fraction})
	return append(all, f.kinds.figures(time.Now())...)
}

// Figures returns the current values of the metrics that are about the queues. Each has the labels that come after that
// of the level.
func (q *Queues) Figures(now time.Time) (all []Figure) {
	number := func(name string, value SeatSeconds, labels ...string) {
		all = append(all, Figure{Name: name, Labels: labels, Value: value.float()})
	}
	if last := &q.latest; last.some {
		number("dispatch_r", last.r)
		number("latest_s", last.start)
		number("next_s_bounds", last.next.least, "min")
		number("next_s_bounds", last.next.largest, "max")
		number("next_discounted_s_bounds", last.expected.least, "min")
		number("next_discounted_s_bounds", last.expected.largest, "max")
	}
	if q.rewound > 0 {
		all = append(all, Figure{Name: "epoch_advance_total", Labels: []string{"true"}, Value: float64(q.rewound)})
	}
	since := now.Sub(q.last)
	const requests = "priority_level_request_utilization"
	return append(all, q.waitRatio.figure(requests, q.waiting, since, phaseNames[phaseWaiting]),
		q.executeRatio.figure(requests, q.executing, since, phaseNames[phaseExecuting]),
		q.seatRatio.figure("priority_level_seat_utilization", q.seatsInUse, since, phaseNames[phaseExecuting]),
		q.demandRatio.figure("demand_seats", q.seatsInUse+q.seatsWaiting, since))
}

func (l *Level) sortedUses() []*use {
	all := make([]*use, 0, len(l.uses))
	for _, u := range l.uses {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b *use) int { return cmp.Compare(a.schema, b.schema) })
	return all
}

func (h *histogram) figure(name string, bounds []float64, labels []string) Figure {
	f := Figure{Name: name, Labels: labels, Counts: map[float64]uint64{}, Samples: h.n, Sum: h.sum}
	var below uint64
	for i, bound := range bounds {
		below += h.counts[i]
		f.Counts[bound] = below
	}
	return f
}
