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
	cluster *Cluster
	reuse   time.Duration

	mu   sync.Mutex
	id   clientv3.LeaseID
	ends time.Time // no later than the lease ends
	keys int
}

// maxLeaseKeys is how many keys share a lease at most.
const maxLeaseKeys = 1000

func (l *leases) init(e *Cluster) {
	l.cluster, l.reuse = e, e.config.LeaseReuse
	if l.reuse == 0 {
		l.reuse = time.Minute
	}
}

// until returns a lease for a key that expires at a time.
func (l *leases) until(ctx context.Context, at time.Time) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	ttl := max(time.Second, at.Sub(now))
	longer := min(ttl/20, l.reuse)
	if l.keys < maxLeaseKeys && !l.ends.Before(at) && l.ends.Before(at.Add(longer+time.Second)) {
		l.keys++
		return l.id, nil
	}
	if observe := l.cluster.config.Observe.Lease; observe != nil && l.keys > 0 {
		observe(l.keys)
	}
	answer, err := l.cluster.client.Grant(ctx, int64(math.Ceil((ttl + longer).Seconds())))
	if err != nil {
		return 0, fmt.Errorf("etcd: no lease: %w", err)
	}
	l.id, l.ends, l.keys = answer.ID, now.Add(time.Duration(answer.TTL)*time.Second), 1
	return l.id, nil
}

// drop makes the next key have a new lease.
func (l *leases) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = time.Time{}
}
