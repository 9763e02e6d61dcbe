package store

import (
	"strings"
	"time"
)

// Charged are the charges of the versions of a namespace: of the live ones, but of those that are sequenced and not
// durable yet where a commit is judged. It is for Limit.More, and must not be used after its call.
type Charged struct {
	Namespace string
	Now       time.Time

	state   *State
	pending map[Key]pendingWrite
}

// Get returns the version of a key of the namespace, and its charge; nil: there is none.
func (c *Charged) Get(k Key) (*Version, *Charge) {
	v := c.state.live.get(k)
	if write, ok := c.pending[k]; ok {
		v = write.version
	}
	if v == nil {
		return nil, nil
	}
	return v, c.state.charge(v)
}

// Each yields the versions of a resource in the namespace with their charges, in no order.
func (c *Charged) Each(resource string, yield func(*Version, *Charge)) {
	if t, ok := c.state.live.collections.Get(resource); ok {
		t.names.Ascend(c.Namespace+"/", func(name string, v *Version) bool {
			if !strings.HasPrefix(name, c.Namespace+"/") {
				return false
			}
			if _, replaced := c.pending[v.Key]; !replaced {
				yield(v, c.state.charge(v))
			}
			return true
		})
	}
	for k, write := range c.pending {
		if v := write.version; v != nil && k.Resource == resource && namespaceOf(k) == c.Namespace {
			yield(v, c.state.charge(v))
		}
	}
}

// Charged calls f with the charges of the durable versions of a namespace. No commit is applied meanwhile.
func (s *State) Charged(namespace string, f func(*Charged)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.charged(namespace, nil))
}

// charged makes a Charged. The caller holds mu, and seq if there are pending writes.
func (s *State) charged(namespace string, pending map[Key]pendingWrite) *Charged {
	return &Charged{Namespace: namespace, Now: s.config.Now(), state: s, pending: pending}
}
