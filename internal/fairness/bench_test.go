package fairness

import (
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/execution"
)

// BenchmarkRequest measures what a request of a plane pays for its turn when there are no others: the match, its seat
// and its place.
func BenchmarkRequest(b *testing.B) {
	about := &access.Attributes{User: access.User{Name: "jane", Groups: []string{access.Authenticated}}, Verb: "get",
		Path: "/"}
	for name, c := range map[string]Config{
		"alone": {Seats: 600},
		"share": {Share: NewCapacity(CapacityConfig{Seats: 600}).Share(ShareConfig{})},
	} {
		b.Run(name, func(b *testing.B) {
			f := New(c)
			b.ReportAllocs()
			for b.Loop() {
				t, p := &Ticket{Work: Work{Seats: 1}}, new(execution.Place)
				class := f.Match(about)
				if class.Acquire(b.Context(), t, about, time.Now().Add(time.Second)) > 0 {
					b.Fatal("refused")
				}
				_ = class.Enter(b.Context(), t, p) // a place is free
				p.Exit()
				t.Release(false)
			}
		})
	}
}
