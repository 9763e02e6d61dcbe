package fairness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

func parsed(t *testing.T, text string) object.Value {
	t.Helper()
	p, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// configured returns a Fairness with these schemas and levels, by name.
func configured(t *testing.T, seats int, schemas, levels map[string]string, share *Share) *Fairness {
	t.Helper()
	f := New(Config{Seats: seats, Share: share})
	s, l := &schemaSet{}, &levelSet{map[string]*levelSpec{}}
	for name, text := range schemas {
		s.all = append(s.all, schemaOf(name, parsed(t, text)))
	}
	for name, text := range levels {
		level, err := levelOf(name, parsed(t, text))
		if err != nil {
			t.Fatal(err)
		}
		l.all[name] = level
	}
	f.schemas = func() (*schemaSet, error) { return s, nil }
	f.specs = func() (*levelSet, error) { return l, nil }
	return f
}

const queuing = `{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"type":"Queue",
	"queuing":{"queues":8,"handSize":2,"queueLengthLimit":3}}}}}`

// SPEC: AUTH-6
// The first schema that matches counts. Without objects, system:masters are exempt and all others share catch-all.
func TestMatch(t *testing.T) {
	f := configured(t, 10, map[string]string{
		"leases": `{"spec":{"matchingPrecedence":7,"priorityLevelConfiguration":{"name":"queues"},"rules":[{
			"subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"ns","name":"*"}}],
			"resourceRules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods/log"],"namespaces":["a"]}],
			"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/x/*"]}]}]}}`,
		"dangling": `{"spec":{"matchingPrecedence":8,"priorityLevelConfiguration":{"name":"none"},"rules":[{
			"subjects":[{"kind":"Group","group":{"name":"*"}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`,
	}, map[string]string{"queues": queuing}, nil)
	account := access.User{Name: "system:serviceaccount:ns:x", Groups: []string{access.Authenticated}}
	for _, c := range []struct {
		a    access.Attributes
		want string
	}{
		{access.Attributes{User: account, Verb: "get", Path: "/x/y"}, "leases"},
		{access.Attributes{User: account, Verb: "get", Path: "/xy"}, CatchAll},
		{access.Attributes{User: account, Verb: "get", IsResource: true, Resource: "pods", Subresource: "log",
			Namespace: "a"}, "leases"},
		{access.Attributes{User: account, Verb: "get", IsResource: true, Resource: "pods", Namespace: "a"}, CatchAll},
		{access.Attributes{User: account, Verb: "get", IsResource: true, Resource: "pods", Subresource: "log"}, CatchAll},
		{access.Attributes{User: access.User{Name: "x", Groups: []string{access.Masters}}, Verb: "get", Path: "/"}, Exempt},
		{access.Attributes{User: access.User{Name: "nobody"}, Verb: "get", Path: "/"}, CatchAll},
	} {
		if schema, _ := f.Match(&c.a).Names(); schema != c.want {
			t.Errorf("%+v: %s, want %s", c.a, schema, c.want)
		}
	}
}

// SPEC: AUTH-6
// A request waits for a seat, gets it when another one ends, and is refused when its time is over. A level that loses
// its object ends when it is idle.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := `{"spec":{"matchingPrecedence":7,"priorityLevelConfiguration":{"name":"queues"},"rules":[{
			"subjects":[{"kind":"User","user":{"name":"*"}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`
		f := configured(t, 2, map[string]string{"all": all}, map[string]string{"queues": queuing}, nil)
		a := &access.Attributes{User: access.User{Name: "jane"}, Verb: "get", Path: "/"}
		class := f.Match(a)
		begin := func(wait time.Duration) (*Ticket, int) {
			one := &Ticket{Work: Work{Seats: 1}}
			return one, class.Acquire(context.Background(), one, a, time.Now().Add(wait))
		}
		first, _ := begin(0)
		if _, after := begin(time.Second); after != 1 {
			t.Errorf("Retry-After is %d", after)
		}
		go func() {
			time.Sleep(time.Second)
			first.Release(false)
		}()
		second, after := begin(time.Minute)
		if after != 0 {
			t.Fatal("the second request was refused")
		}
		var text strings.Builder
		if err := f.DumpRequests(&text, true); err != nil || !strings.Contains(text.String(), "jane") {
			t.Errorf("%v\n%s", err, &text)
		}
		f.specs = func() (*levelSet, error) { return noLevels, nil }
		if schema, _ := f.Match(a).Names(); schema != CatchAll || f.levels["queues"] == nil {
			t.Errorf("%s, and the level has ended with a request", schema)
		}
		second.Release(false)
		f.adjust()
		if f.levels["queues"] != nil {
			t.Error("an idle level without an object goes on")
		}
	})
}

// SPEC: AUTH-6
// The estimates are those of the reference.
func TestEstimates(t *testing.T) {
	figures := &Stats{Objects: 1000, Bytes: 2000}
	for _, c := range []struct {
		list List
		want int
	}{
		{List{}, 10}, // 2 MB, of which 1 MB at once
		{List{Limit: 100}, 2},
		{List{Limit: 500, Revision: "5"}, 10},
		{List{Revision: "5", Match: "Exact"}, 20},
		{List{Revision: "5", Match: "Exact", Limit: 1, Selects: true}, 10},
		{List{Single: true}, 1},
		{List{Watch: true, Revision: "5"}, 1},
		{List{Watch: true, Revision: "0"}, 10},
		{List{Watch: true, Revision: "5", SendInitial: true}, 10},
		{List{Invalid: true}, 100},
	} {
		if got := c.list.Work(func() *Stats { return figures }, 0).Seats; got != c.want {
			t.Errorf("%+v: %d seats, want %d", c.list, got, c.want)
		}
	}
	if w := WriteWork(9, 0); w.Seats != 1 || w.FinalSeats != 0 || w.FinalTime != 0 {
		t.Errorf("nine watches: %+v", w)
	}
	if w := WriteWork(200, 4); w.FinalSeats != 4 || w.FinalTime != 25*time.Millisecond {
		t.Errorf("200 watches: %+v", w)
	}
	var watchers Watchers
	watchers.Add(Watched{Resource: "pods"}, 1)
	watchers.Add(Watched{Resource: "pods", Namespace: "a"}, 1)
	watchers.Add(Watched{Resource: "pods", Namespace: "b"}, 1)
	if n := watchers.Interested(Watched{Resource: "pods", Namespace: "a", Name: "x"}); n != 2 {
		t.Errorf("%d watches are interested", n)
	}
}

// SPEC: AUTH-6
// Retry-After doubles while many are refused, up to 32 seconds, and falls by one when few are.
func TestRetryAfter(t *testing.T) {
	r := refusals{after: 1}
	second, last := int64(1000), 0
	for ; second < 1200; second++ {
		for range 200 {
			last = r.add(second)
		}
	}
	if last != longestRetry {
		t.Errorf("Retry-After is %d", last)
	}
	for ; second < 6000; second += 100 {
		last = r.add(second)
	}
	if last != 1 {
		t.Errorf("Retry-After is %d after a calm", last)
	}
}

// SPEC: AUTH-6
// A level has the counts of the flow schemas that are there, and of those with requests under way, however many have
// come and gone.
func TestCountsOfSchemasThatAreGone(t *testing.T) {
	f := configured(t, 10, nil, map[string]string{"queues": queuing}, nil)
	name := func(i int) string { return fmt.Sprint("schema", i) }
	set := func(i int) {
		s := &schemaSet{all: []*Schema{schemaOf(name(i), parsed(t, `{"spec":{"matchingPrecedence":7,
			"priorityLevelConfiguration":{"name":"queues"},"rules":[{"subjects":[{"kind":"Group","group":{"name":"*"}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`))}}
		f.schemas = func() (*schemaSet, error) { return s, nil }
	}
	set(0)
	user := access.User{Name: "x", Groups: []string{access.Authenticated}}
	about := &access.Attributes{User: user, Verb: "get", Path: "/"}
	class, ticket := f.Match(about), &Ticket{Work: Work{Seats: 1}}
	if class.Acquire(t.Context(), ticket, about, time.Now().Add(time.Minute)) != 0 {
		t.Fatal("there are no seats")
	}
	uses := f.levels["queues"].uses
	for i := 1; i < 100; i++ {
		set(i)
		f.now()
	}
	if len(uses) != 2 || uses[name(0)] == nil || uses[name(99)] == nil {
		t.Errorf("after 100 schemas, and with a request of the first one, there are counts of %d", len(uses))
	}
	ticket.Release(false)
	set(100)
	f.now()
	if len(uses) != 1 || uses[name(100)] == nil {
		t.Errorf("when the request has ended, there are counts of %d", len(uses))
	}
}
