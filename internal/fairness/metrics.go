package fairness

// Metric is a metric of this package: a histogram if it has buckets, a counter if its name ends with _total, a gauge
// otherwise.
type Metric struct {
	Name    string // without the prefix of all metrics of the subsystem
	Labels  []string
	Buckets []float64
	Help    string
}

// Metrics returns the metrics, which are those of the reference.
func Metrics() []Metric {
	level, flow := []string{"priority_level"}, []string{"priority_level", "flow_schema"}
	with := func(labels []string, one string) []string { return append(append([]string{}, labels...), one) }
	return []Metric{
		{"nominal_limit_seats", level, nil, "Seats that a level has by its configuration."},
		{"lower_limit_seats", level, nil, "Seats that a level has at least."},
		{"upper_limit_seats", level, nil, "Seats that a level has at most."},
		{"current_limit_seats", level, nil, "Seats that a level has now."},
		{"demand_seats_high_watermark", level, nil,
			"The most seats that were wanted at one time in the last ten seconds."},
		{"demand_seats_average", level, nil, "Seats that were wanted on average in the last ten seconds."},
		{"demand_seats_stdev", level, nil,
			"The standard deviation of the seats that were wanted in the last ten seconds."},
		{"demand_seats_smoothed", level, nil, "Seats that were wanted, smoothed over minutes."},
		{"target_seats", level, nil, "Seats that a level should have by its demand."},
		{"demand_seats", level, demandRatios,
			"Nanoseconds by the seats that were wanted, as a part of those that the level has."},
		{"priority_level_seat_utilization", with(level, "phase"), seatRatios,
			"Nanoseconds by the seats in use, as a part of those that the level has."},
		{"priority_level_request_utilization", with(level, "phase"), requestRatios,
			"Nanoseconds by the requests that wait or are executed, as a part of the room in the queues or of the seats."},
		{"read_vs_write_current_requests", []string{"phase", "request_kind"}, kindRatios,
			"Nanoseconds by the requests that wait or are executed, as a part of what all levels together may have."},
		{"current_r", level, nil, "The virtual time of the queues."},
		{"dispatch_r", level, nil, "The virtual time of the last dispatch."},
		{"latest_s", level, nil, "The virtual start of the request that was dispatched last."},
		{"next_s_bounds", with(level, "bound"), nil,
			"At the last dispatch, the bounds of the virtual starts of the next requests of the queues."},
		{"next_discounted_s_bounds", with(level, "bound"), nil,
			"At the last dispatch, the bounds of the virtual starts of the next requests, less the work under way."},
		{"epoch_advance_total", with(level, "success"), nil, "How often the virtual time was set back."},
		{"request_dispatch_no_accommodation_total", flow, nil,
			"How often there were not enough seats for the next request."},
		{"request_queue_length_after_enqueue", flow, lengthBuckets,
			"Requests in a queue when one has come into it."},
		{"watch_count_samples", flow, watchBuckets, "Watches that may be interested in a write."},
		{"seat_fair_frac", nil, nil, "The part of their demand that all levels get."},
		{"dispatched_requests_total", flow, nil, "Requests that were executed."},
		{"rejected_requests_total", with(flow, "reason"), nil, "Requests that were refused."},
		{"current_inqueue_requests", flow, nil, "Requests that wait."},
		{"current_inqueue_seats", flow, nil, "Seats that requests wait for."},
		{"current_executing_requests", flow, nil, "Requests that are executed."},
		{"current_executing_seats", flow, nil, "Seats in use."},
		{"request_wait_duration_seconds", with(flow, "execute"), secondBuckets, "How long requests have waited."},
		{"request_execution_seconds", with(flow, "type"), secondBuckets,
			"How long requests were executed, watches until their initial events."},
		{"work_estimated_seats", flow, seatBuckets, "Seats that requests were estimated at."},
	}
}
