package fairness

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
)

// SPEC: AUTH-6
// Every metric of the table occurs, with its labels and buckets, and no other one does. Requests that read and write
// are counted for the time that they wait and execute.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := `{"spec":{"matchingPrecedence":7,"priorityLevelConfiguration":{"name":"queues"},"rules":[{
			"subjects":[{"kind":"User","user":{"name":"*"}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`
		f := configured(t, 2, map[string]string{"all": all}, map[string]string{"queues": queuing}, nil)
		a := &access.Attributes{User: access.User{Name: "jane"}, Verb: "create", Path: "/"}
		class := f.Match(a)
		first := &Ticket{Work: WriteWork(3, 0)}
		if class.Acquire(context.Background(), first, a, time.Now()) != 0 {
			t.Fatal("the first request was refused")
		}
		go func() {
			time.Sleep(time.Second)
			first.Release(true)
		}()
		second := &Ticket{Work: Work{Seats: 1}}
		read := *a
		read.Verb = "get"
		if class.Acquire(context.Background(), second, &read, time.Now().Add(time.Minute)) != 0 {
			t.Fatal("the second request was refused")
		}
		wide := &Ticket{Work: Work{Seats: 2}}
		if class.Acquire(context.Background(), wide, a, time.Now().Add(time.Second)) == 0 {
			t.Fatal("a request that has no seats was not refused")
		}
		second.Release(false)
		queues := f.levels["queues"].queues
		queues.Configure(time.Now(), queues.shape, 2)
		if class.Acquire(context.Background(), first, a, time.Now()) != 0 {
			t.Fatal("a request was refused that finds a seat")
		}
		if class.Acquire(context.Background(), wide, a, time.Now().Add(time.Second)) == 0 { // one seat is free
			t.Fatal("a request that has not enough seats was not refused")
		}
		first.Release(false)
		queues.rewind()

		table, found := map[string]Metric{}, map[string]bool{}
		for _, m := range Metrics() {
			table[m.Name] = m
		}
		for _, one := range f.Figures() {
			m, ok := table[one.Name]
			if found[one.Name] = true; !ok || len(one.Labels) != len(m.Labels) || (one.Counts == nil) != (m.Buckets == nil) ||
				one.Counts != nil && !slices.Equal(slices.Sorted(maps.Keys(one.Counts)), m.Buckets) {
				t.Errorf("%+v is not as %+v", one, m)
			}
			if one.Name != "read_vs_write_current_requests" {
				continue
			}
			// Of four seconds, a write executes for two, and then waits for one twice; a read waits for one.
			most := one.Samples - one.Counts[0]
			want := map[string]time.Duration{"waiting readOnly": 1, "waiting mutating": 2, "executing readOnly": 1,
				"executing mutating": 2}[one.Labels[0]+" "+one.Labels[1]] * time.Second
			if time.Duration(most) != want {
				t.Errorf("%v for %v, not %v", one.Labels, time.Duration(most), want)
			}
		}
		for name := range table {
			if !found[name] {
				t.Errorf("there is no %s", name)
			}
		}
	})
}
