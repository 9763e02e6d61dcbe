package plinthtest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Log is requests in the order in which they came.
type Log []Request

// Requests returns the requests of the code under test so far, those that are under way included.
func (p *Plane) Requests() Log {
	p.front.mu.Lock()
	defer p.front.mu.Unlock()
	all := make(Log, len(p.front.log))
	for i, q := range p.front.log {
		all[i] = *q
	}
	return all
}

// By returns the requests of somebody: a user, a field manager, or a program whose User-Agent begins with the word.
func (l Log) By(who string) Log {
	return l.where(func(q *Request) bool {
		agent, _, _ := strings.Cut(q.Agent, "/")
		return q.User == who || q.Manager == who || agent == who
	})
}

// Writes returns the requests that are to change something.
func (l Log) Writes() Log { return l.where((*Request).writes) }

// On returns the requests for a resource, such as "deployments", or for a subresource: "deployments/status".
func (l Log) On(resource string) Log {
	name, sub, both := strings.Cut(resource, "/")
	return l.where(func(q *Request) bool { return q.Resource == name && (!both || q.Subresource == sub) })
}

// Verb returns the requests with one of these verbs.
func (l Log) Verb(verbs ...string) Log {
	return l.where(func(q *Request) bool { return slices.Contains(verbs, q.Verb) })
}

func (l Log) where(holds func(*Request) bool) Log {
	var some Log
	for i := range l {
		if holds(&l[i]) {
			some = append(some, l[i])
		}
	}
	return some
}

// String prints a line for each request. In a bubble, goroutines that run at one moment of virtual time have no
// order, so the lines of one moment are sorted: the text is the same in each run of a test whose code is
// deterministic.
func (l Log) String() string {
	sorted := slices.Clone(l)
	slices.SortStableFunc(sorted, func(a, b Request) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.String(), b.String()))
	})
	var text strings.Builder
	for i := range sorted {
		text.WriteString(sorted[i].Time.UTC().Format("2006-01-02T15:04:05.000Z "))
		text.WriteString(sorted[i].String())
		text.WriteByte('\n')
	}
	return text.String()
}

func itoa(n int) string { return strconv.Itoa(n) }
