package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
)

// Cluster is a store that several writers share, like an etcd. It has the true state, orders the commits of all
// writers, and deletes expired objects. It stores keys and bytes, with Expire and Form; each replica computes the rest
// of a sidecar itself.
type Cluster struct {
	// OneRevision makes each commit take one revision, which all of its changes have, as a transaction of etcd does. It is
	// set before the first commit.
	OneRevision bool

	now func() time.Time

	mu       sync.Mutex
	revision int64
	live     map[store.Key]*store.Version
	commits  []shared         // those that some replica has not received yet
	gone     int              // the number of commits before these
	fed      map[*Replica]int // the number of commits that each replica has received
	grew     chan struct{}    // closed when there is a new commit
}

// shared is a commit of the cluster.
type shared struct {
	last, time int64
	by         *Replica // the replica that made it; nil: the cluster itself
	changes    []*store.Version
	revisions  store.Revisions // of changes
}

// NewCluster returns an empty cluster. now is its clock; nil is the real one.
func NewCluster(now func() time.Time) *Cluster {
	if now == nil {
		now = time.Now
	}
	return &Cluster{now: now, revision: store.FirstRevision, live: map[store.Key]*store.Version{},
		fed: map[*Replica]int{}, grew: make(chan struct{})}
}

// Replica is a writer on a cluster, whose state lags behind it. It is the worst writer that the contract of
// store.Writer allows:
//
//   - Without sure set, Fresh reports that it does not know whether a version is current.
//   - The state receives the commits of other replicas some time later. While it is held, it receives only those that
//     the contract demands: up to its own commit, up to the reason of a conflict, and up to the newest one for a call
//     of Fresh with sure set.
type Replica struct {
	cluster *Cluster
	state   *store.State

	life   sync.RWMutex // held for reading by every write
	closed bool
	quit   chan struct{}
	wait   sync.WaitGroup

	feeding sync.Mutex
	held    bool
}

// Open opens a store on the cluster, which begins with the cluster's state.
func (c *Cluster) Open(config store.Config) (*store.Store, *Replica, error) {
	r := &Replica{cluster: c, quit: make(chan struct{})}
	c.mu.Lock()
	from := c.checkpoint()
	c.fed[r] = c.count()
	c.mu.Unlock()
	var err error
	if r.state, err = store.NewState(config, from, nil); err != nil {
		c.leave(r)
		return nil, nil, err
	}
	r.wait.Go(r.follow)
	return &store.Store{State: r.state, Writer: r, Others: r}, r, nil
}

// checkpoint is the state of the cluster. The caller holds mu.
func (c *Cluster) checkpoint() *store.Checkpoint {
	from := store.EmptyCheckpoint()
	versions := make([]*store.Version, 0, len(c.live))
	for _, v := range c.live {
		versions = append(versions, v)
	}
	from.Revision, from.Window.Horizon = c.revision, c.revision
	from.Versions = func(yield func(*store.Version, error) bool) {
		for _, v := range versions {
			if !yield(v, nil) {
				return
			}
		}
	}
	return from
}

// Foreign and Transactions are the implementations of stores whose writer is a replica of a cluster of its own. In
// Transactions, that has one revision for each commit.
var (
	Foreign      = foreign(false)
	Transactions = foreign(true)
)

func foreign(oneRevision bool) Implementation {
	return Implementation{OneRevision: oneRevision, New: func(t testing.TB) func(store.Config) (*store.Store, error) {
		return func(config store.Config) (*store.Store, error) {
			c := NewCluster(config.Now)
			c.OneRevision = oneRevision
			s, _, err := c.Open(config)
			stop := make(chan struct{})
			go c.expire(stop)
			t.Cleanup(func() { close(stop) })
			return s, err
		}
	}}
}

// Hold limits the state to the commits that the contract demands; or, with false, lets it receive all of them soon.
func (r *Replica) Hold(held bool) {
	r.feeding.Lock()
	r.held = held
	r.feeding.Unlock()
	if !held {
		r.feed(r.cluster.newest())
	}
}

// Commit is store.Writer.Commit.
func (r *Replica) Commit(ctx context.Context, pre []store.Precondition, changes []store.Change) (store.Revisions,
	error) {
	r.life.RLock()
	defer r.life.RUnlock()
	if r.closed {
		return store.Revisions{}, store.ErrClosed
	}
	versions := make([]*store.Version, len(changes))
	for i, ch := range changes {
		versions[i] = store.NewVersion(ch.Key, 0, ch.Data, ch.Sidecar)
		if ch.Data != nil && ch.Sidecar == nil {
			versions[i].Sidecar = r.state.Describe(ch.Key, ch.Data, time.Time{}, 0)
		}
	}
	given, needed, err := r.cluster.commit(ctx, r, pre, versions)
	if ctx.Err() != nil {
		return store.Revisions{}, ctx.Err()
	}
	r.feed(needed)
	return given, err
}

// Fresh is store.Others.Fresh.
func (r *Replica) Fresh(ctx context.Context, _ store.Key, sure bool) (current bool, err error) {
	if sure {
		r.feed(r.cluster.newest())
	}
	return sure, ctx.Err()
}

// Atomic is store.Others.Atomic.
func (r *Replica) Atomic(a, b store.Key) bool {
	return !r.cluster.OneRevision || a.Resource != b.Resource
}

// Healthy is store.Writer.Healthy.
func (r *Replica) Healthy() error {
	r.life.RLock()
	defer r.life.RUnlock()
	if r.closed {
		return store.ErrClosed
	}
	return nil
}

// Close is store.Writer.Close. The cluster and the other replicas continue.
func (r *Replica) Close() error {
	r.life.Lock()
	again := r.closed
	r.closed = true
	r.life.Unlock()
	if !again {
		close(r.quit)
		r.wait.Wait()
		r.state.End()
		r.cluster.leave(r)
	}
	return nil
}

// follow applies the commits of the cluster to the state, a little later.
func (r *Replica) follow() {
	for {
		r.cluster.mu.Lock()
		grew, n := r.cluster.grew, r.cluster.count()
		r.cluster.mu.Unlock()
		r.feeding.Lock()
		held := r.held
		r.feeding.Unlock()
		if !held {
			r.feed(n)
		}
		select {
		case <-grew:
		case <-r.quit:
			return
		}
		select {
		case <-time.After(500 * time.Microsecond):
		case <-r.quit:
			return
		}
	}
}

// feed applies the first n commits of the cluster to the state, as far as it lacks them.
func (r *Replica) feed(n int) {
	r.feeding.Lock()
	defer r.feeding.Unlock()
	for {
		from, ok := r.cluster.next(r, n)
		if !ok {
			return
		}
		c := &store.Commit{Revision: from.last, Time: from.time}
		for i, v := range from.changes {
			record := &store.Record{Key: v.Key, Revision: from.revisions.Of(i)}
			if record.Old, _ = r.state.Get(v.Key); record.Old != nil {
				record.Key = record.Old.Key
			}
			if v.Data() != nil {
				mine := v.Sidecar
				if from.by != r { // received as bytes
					mine = r.state.Describe(v.Key, v.Data(), v.Sidecar.Expire, v.Sidecar.Form)
				}
				record.New = store.NewVersion(record.Key, record.Revision, v.Data(), mine)
			}
			c.Records = append(c.Records, record)
		}
		r.state.Apply(c)
	}
}

// next returns the next commit for a replica that should have the first n.
func (c *Cluster) next(r *Replica, n int) (from shared, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, joined := c.fed[r]
	if !joined || at >= n {
		return from, false
	}
	from = c.commits[at-c.gone]
	c.fed[r]++
	c.forget()
	return from, true
}

// forget drops the commits that every replica has received. The caller holds mu.
func (c *Cluster) forget() {
	least := c.count()
	for _, n := range c.fed {
		least = min(least, n)
	}
	clear(c.commits[:least-c.gone])
	c.commits = c.commits[least-c.gone:]
	c.gone = least
}

func (c *Cluster) leave(r *Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fed, r)
	c.forget()
}

// count is the number of all commits so far. The caller holds mu.
func (c *Cluster) count() int { return c.gone + len(c.commits) }

// newest is count for callers that do not hold mu.
func (c *Cluster) newest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count()
}

// commit implements store.Writer.Commit. needed is the number of commits that the state of the writer must have before
// the result may be returned.
func (c *Cluster) commit(ctx context.Context, by *Replica, pre []store.Precondition,
	changes []*store.Version) (given store.Revisions, needed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return given, c.count(), err
	}
	for i := range pre {
		if err := pre[i].Holds(c.live[pre[i].Key]); err != nil {
			return given, c.count(), err
		}
	}
	seen := map[store.Key]bool{}
	for _, v := range changes {
		if seen[v.Key] {
			return given, c.count(), fmt.Errorf("commit changes %s twice", v.Key)
		}
		seen[v.Key] = true
	}
	revisions := store.Revisions{First: c.revision + 1}
	if !c.OneRevision {
		revisions.Step = 1
	}
	for i, v := range changes {
		if v.Data() == nil {
			delete(c.live, v.Key)
			continue
		}
		c.live[v.Key] = v.At(revisions.Of(i))
	}
	c.revision = revisions.Of(max(0, len(changes)-1))
	c.commits = append(c.commits,
		shared{last: c.revision, time: c.now().UnixNano(), by: by, changes: changes, revisions: revisions})
	close(c.grew)
	c.grew = make(chan struct{})
	return revisions, c.count(), nil
}

// expire deletes expired objects until stop is closed.
func (c *Cluster) expire(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		now := c.now()
		var due []*store.Version
		c.mu.Lock()
		for _, v := range c.live {
			if at := v.Sidecar.Expire; !at.IsZero() && !at.After(now) {
				due = append(due, v)
			}
		}
		c.mu.Unlock()
		for _, v := range due {
			_, _, err := c.commit(context.Background(), nil, []store.Precondition{store.At(v)}, []*store.Version{{Key: v.Key}})
			if err != nil && !errors.As(err, new(*store.ConflictError)) {
				panic(err)
			}
		}
	}
}
