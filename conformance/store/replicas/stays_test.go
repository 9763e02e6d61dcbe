package replicas

import (
	"fmt"
	"sync"
)

// stays are the stays of a workload while it runs.
type stays struct {
	mu    sync.Mutex
	list  []stay
	ended map[string]int64 // when the first deletion of a name was sent
	lists []string         // violations that a list showed
}

// begin notes that something is there. Its deletion may have been sent before its creation was answered.
func (s *stays) begin(one stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// end notes that a deletion is sent.
func (s *stays) end(what string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[string]int64{}
	}
	if _, ok := s.ended[what]; !ok {
		s.ended[what] = at
	}
}

// listed notes how many objects a list has shown.
func (s *stays) listed(n int, a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > room {
		s.lists = append(s.lists, fmt.Sprintf("a list of replica %d has %d objects at revision %d, with a quota of %d",
			a.replica, n, a.body.revision(), room))
	}
}

// all are the stays with their ends.
func (s *stays) all() []stay {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]stay, len(s.list))
	for i, one := range s.list {
		if one.till = never; s.ended[one.what] != 0 {
			one.till = s.ended[one.what]
		}
		all[i] = one
	}
	return all
}
