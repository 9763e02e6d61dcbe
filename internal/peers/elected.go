package peers

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/apierr"
	"plinth/internal/election"
	"plinth/internal/engine"
	"plinth/object"
)

// controllersLease is the Lease in kube-system whose holder runs the controllers. kube-controller-manager has one of
// its own: where it is used, --controllers turns those of all servers off.
const controllersLease = "plinth-controllers"

// Elect takes part in the election of the server that runs the controllers, until leaving is over. work is called on
// each election of this server, and has to return when its context ends. What is written with that context is refused
// once another server has taken over (engine.Term).
func (c *Config) Elect(leaving context.Context, work func(context.Context)) {
	leases := c.Registry.Builtin().Find("coordination.k8s.io", "v1", "leases")
	if leases == nil {
		c.Logger.Warn("no controllers run: servers on one etcd elect the one that runs them by a Lease, " +
			"and --runtime-config turns those off")
		return
	}
	leads := func(leads bool) {
		if c.Leads != nil {
			c.Leads(controllersLease, leads)
		}
	}
	leads(false)
	lock := &electionLock{engine: c.Engine, rq: engine.Request{Resource: leases, Namespace: "kube-system",
		Name: controllersLease, FieldManager: "kube-apiserver", OwnStart: true}}
	wake := make(chan struct{}, 1)
	var followed sync.WaitGroup
	followed.Go(func() { lock.follow(leaving, wake) })
	election.Run(leaving, election.Config{
		Name: c.Identity + "_" + uuid.NewString(), Read: lock.read, Write: lock.write, Wake: wake, Logger: c.Logger,
		Work: func(ctx context.Context) {
			leads(true)
			defer leads(false)
			work(engine.Under(ctx, lock.term))
		},
	})
	followed.Wait()
}

// electionLock keeps the record of an election in a Lease.
type electionLock struct {
	engine *engine.Engine
	rq     engine.Request
	live   object.Value // the Lease as it was read or written last
	term   *engine.Term // the one that this server has begun last; nil: none
}

// read is election.Config.Read.
func (l *electionLock) read(ctx context.Context) (r election.Record, err error) {
	result, err := l.engine.Get(ctx, &l.rq, "")
	if apierr.Is(err, apierr.NotFound) {
		l.live = object.Nil
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if l.live, err = engine.ObjectOf(result.Object); err != nil {
		return r, err
	}
	spec := l.live.At("spec")
	r = election.Record{
		Revision: result.Object.Revision, Leader: spec.At("holderIdentity").Str(),
		Duration:    time.Duration(spec.At("leaseDurationSeconds").Int()) * time.Second,
		Transitions: spec.At("leaseTransitions").Int(),
	}
	// Both are for people. A time that cannot be parsed is replaced by the next leader.
	r.Acquired, _ = time.Parse(time.RFC3339Nano, spec.At("acquireTime").Str())
	r.Renewed, _ = time.Parse(time.RFC3339Nano, spec.At("renewTime").Str())
	return r, nil
}

// write is election.Config.Write. It keeps what others have added to the Lease.
func (l *electionLock) write(ctx context.Context, r election.Record) (revision int64, err error) {
	text := object.StringOf
	spec := l.live.At("spec")
	if spec.IsNull() {
		spec = object.MapOf()
	}
	spec = spec.With("holderIdentity", text(r.Leader)).
		With("leaseDurationSeconds", object.IntOf(int64(r.Duration/time.Second))).
		With("leaseTransitions", object.IntOf(r.Transitions)).
		With("acquireTime", text(r.Acquired.UTC().Format(microTime))).
		With("renewTime", text(r.Renewed.UTC().Format(microTime)))
	rq := l.rq
	// A take-over begins a term. One whose outcome was not known is made again, so that the term is known.
	if before := l.live.At("spec", "holderIdentity").Str(); r.Leader != "" && (before != r.Leader || !l.term.Begun()) {
		l.term = &engine.Term{Name: controllersLease}
		rq.Term = l.term
	}
	var result *engine.Result
	if r.Revision == 0 {
		rq.Name = ""
		result, err = l.engine.Create(ctx, &rq, object.Parsed{Value: object.Fields(
			"metadata", object.Fields("name", text(l.rq.Name)), "spec", spec)})
	} else {
		body := l.live.With("spec", spec).WithAt(text(strconv.FormatInt(r.Revision, 10)), "metadata", "resourceVersion")
		result, err = l.engine.Update(ctx, &rq, object.Parsed{Value: body})
	}
	switch {
	case apierr.Is(err, apierr.AlreadyExists), apierr.Is(err, apierr.Conflict), apierr.Is(err, apierr.NotFound):
		return 0, election.ErrLost
	case err != nil:
		return 0, err
	}
	if l.live, err = engine.ObjectOf(result.Object); err != nil {
		return 0, err
	}
	return result.Object.Revision, nil
}

// follow wakes the election at each change of the Lease, until ctx ends.
func (l *electionLock) follow(ctx context.Context, wake chan<- struct{}) {
	for ctx.Err() == nil {
		rq := l.rq
		rq.Name = ""
		watch, err := l.engine.Watch(ctx, &rq, engine.WatchOptions{ListOptions: engine.ListOptions{
			Fields: fields.OneTermEqualSelector("metadata.name", l.rq.Name)}})
		for err == nil {
			if _, err = watch.Next(ctx); err == nil {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		}
		if watch != nil {
			watch.Close()
		}
		select { // without the watch, the election looks at the Lease every two seconds
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
