package fairness

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
		all[i] = QueueDump{
			Pending: one.waiting.n, Executing: one.executing.n, SeatsInUse: one.seats, NextR: one.nextR,
			SeatsSum: one.waitingSeats, MaxSum: one.waitingMax, WorkSum: one.waitingWork,
		}
	}
	return all
}
