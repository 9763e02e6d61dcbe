package etcd

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases give keys that expire a lease of etcd. Many keys share one, as a lease costs etcd a write, and its end a scan:
// as in the reference, a lease lives a little longer than what it is for, by 5 % and a minute at most, and is used
// again for that long, for up to a thousand keys.
//
//	a key that expires at t has a lease that ends in [t, t + min(5 %, LeaseReuse)]
type leases struct {
	cluster  *Cluster
	reuse    time.Duration
	granting chan struct{} // of capacity 1; full while a lease is asked for

	mu   sync.Mutex // guards the following; no request is made under it
	id   clientv3.LeaseID
	ends time.Time // no later than the lease ends
	keys int
}

// maxLeaseKeys is how many keys share a lease at most.
const maxLeaseKeys = 1000

func (l *leases) init(e *Cluster) {
	l.cluster, l.reuse, l.granting = e, e.config.LeaseReuse, make(chan struct{}, 1)
	if l.reuse == 0 {
		l.reuse = time.Minute
	}
}

// until returns a lease for a key that expires at a time. One is asked for at a time, and whoever needs it waits no
// longer than its context.
func (l *leases) until(ctx context.Context, at time.Time) (clientv3.LeaseID, error) {
	if id, ok := l.shared(at); ok {
		return id, nil
	}
	select {
	case l.granting <- struct{}{}:
		defer func() { <-l.granting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if id, ok := l.shared(at); ok {
		return id, nil
	}
	now := time.Now()
	ttl := max(time.Second, at.Sub(now))
	answer, err := l.cluster.client.Grant(ctx, int64(math.Ceil((ttl + l.longer(ttl)).Seconds())))
	if err != nil {
		return 0, fmt.Errorf("etcd: no lease: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if observe := l.cluster.config.Observe.Lease; observe != nil && l.keys > 0 {
		observe(l.keys)
	}
	l.id, l.ends, l.keys = answer.ID, now.Add(time.Duration(answer.TTL)*time.Second), 1
	return l.id, nil
}

// shared returns the lease that there is, if a key that expires at a time may have it.
func (l *leases) shared(at time.Time) (clientv3.LeaseID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	longer := l.longer(max(time.Second, time.Until(at)))
	if l.keys == maxLeaseKeys || l.ends.Before(at) || !l.ends.Before(at.Add(longer+time.Second)) {
		return 0, false
	}
	l.keys++
	return l.id, true
}

// longer is how much longer a lease lives than a key that expires after a time.
func (l *leases) longer(ttl time.Duration) time.Duration { return min(ttl/20, l.reuse) }

// drop makes the next key have a new lease.
func (l *leases) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = time.Time{}
}
