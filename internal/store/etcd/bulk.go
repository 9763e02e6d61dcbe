package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"plinth/internal/store"
)

// This file reads and writes an etcd as a whole, for programs that copy all objects from one store to another, while no
// server serves them: without a state, a watch or a history.
//
// A copy into an etcd is many transactions, so it can be interrupted. A note says that it has begun, and with what:
//
//	there is a note  ⇔  a copy into this prefix has begun and not ended

// Stored is a key below the prefix.
type Stored struct {
	Path string // without the prefix
	// Version is the object, without what its bytes say (store.Sidecar); Unreadable says why it could not be read. Nil:
	// the layout has no object there.
	Version *store.Version
}

// notePath is the path of the note of a copy. No object has this path.
const notePath = "plinth/copy"

// Scan reads all keys below the prefix, in the order of their paths, as of one revision, and the note of a copy, which
// is not among them; nil: there is none. Objects that expire get their end from their leases.
func (e *Cluster) Scan(ctx context.Context) (all []Stored, note []byte, revision int64, err error) {
	for {
		all, note, revision, err = e.scanOnce(ctx)
		if !errors.Is(err, rpctypes.ErrCompacted) || ctx.Err() != nil { // the history was compacted meanwhile
			return all, note, revision, err
		}
	}
}

func (e *Cluster) scanOnce(ctx context.Context) (all []Stored, note []byte, revision int64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	leases := map[int64]time.Time{}
	for p := range e.pages(ctx, "") {
		if p.err != nil {
			return nil, nil, 0, p.err
		}
		revision = p.revision
		for i, v := range e.decodeAll(ctx, p.kvs) {
			kv := p.kvs[i]
			at := strings.TrimPrefix(string(kv.Key), e.prefix)
			if at == notePath {
				note = kv.Value
				continue
			}
			if v != nil && kv.Lease != 0 {
				end, err := e.expiry(ctx, kv, leases)
				if err != nil {
					return nil, nil, 0, err
				}
				v.Sidecar.Expire = end
			}
			all = append(all, Stored{at, v})
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, 0, err
	}
	return all, note, revision, nil
}

// expiry is when a key ends that has a lease. A lease that is gone has ended since the key was read.
func (e *Cluster) expiry(ctx context.Context, kv *mvccpb.KeyValue, known map[int64]time.Time) (time.Time, error) {
	if end, ok := known[kv.Lease]; ok {
		return end, nil
	}
	answer, err := e.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
	if err != nil {
		return time.Time{}, fmt.Errorf("etcd: the lease of %s: %w", kv.Key, err)
	}
	end := time.Now().Add(time.Duration(max(0, answer.TTL)) * time.Second)
	known[kv.Lease] = end
	return end, nil
}

// Unfinished returns the note of a copy that has not ended; nil: there is none.
func (e *Cluster) Unfinished(ctx context.Context) ([]byte, error) {
	answer, err := e.client.Get(ctx, e.prefix+notePath)
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	return answer.Kvs[0].Value, nil
}

// Begin writes the note of a copy, unless there is one.
func (e *Cluster) Begin(ctx context.Context, note []byte) error {
	key := e.prefix + notePath
	answer, err := e.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(note))).Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("another copy into this etcd has just begun")
	}
	return err
}

// End removes the note.
func (e *Cluster) End(ctx context.Context) error {
	_, err := e.client.Delete(ctx, e.prefix+notePath)
	return err
}

// Changed is how many objects were written after a revision. Deletions are not counted.
func (e *Cluster) Changed(ctx context.Context, revision int64) (n int, err error) {
	answer, err := e.client.Get(ctx, e.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithMinModRev(revision+1))
	if err != nil {
		return 0, err
	}
	for _, kv := range answer.Kvs {
		if _, ok := e.key(kv); ok {
			n++
		}
	}
	return n, nil
}

// Revision is the newest revision of etcd.
func (e *Cluster) Revision(ctx context.Context) (int64, error) {
	answer, err := e.probe(ctx)
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// How Raise writes. An etcd puts the writes that arrive at the same time into one sync of its disk.
const (
	raising      = 128     // writes at a time
	raiseCompact = 200_000 // revisions after which what was written is given back
)

// Raise makes the revision of etcd at least what is asked for. etcd counts its transactions, and its API cannot make it
// count on from another number; so the note is written as often as it takes, and the history of that compacted. done is
// called with the revision that is reached; calls do not overlap.
func (e *Cluster) Raise(ctx context.Context, note []byte, to int64, done func(revision int64)) error {
	reached, err := e.Revision(ctx)
	if err != nil {
		return err
	}
	for reached < to {
		end := min(to, reached+raiseCompact)
		var at atomic.Int64
		at.Store(reached)
		if err := e.writeNote(ctx, note, &at, end, done); err != nil {
			return err
		}
		reached = at.Load()
		if _, err := e.client.Compact(ctx, reached); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
	return nil
}

// writeNote writes the note until a revision is reached, which at is brought up to.
func (e *Cluster) writeNote(ctx context.Context, note []byte, at *atomic.Int64, end int64, done func(int64)) error {
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for range raising {
		group.Go(func() error {
			for at.Load() < end {
				answer, err := e.client.Put(ctx, e.prefix+notePath, string(note))
				if err != nil {
					return err
				}
				mu.Lock()
				at.Store(max(at.Load(), answer.Header.Revision))
				done(at.Load())
				mu.Unlock()
			}
			return nil
		})
	}
	return group.Wait()
}

// How Fill writes. etcd takes 128 operations and 1.5 MiB at a time by default.
const (
	filling   = 8
	fillKeys  = 100
	fillBytes = 1 << 20
)

// Fill creates objects. done is called with the number of those that are written since its last call; calls do not
// overlap. It is an error if one of the keys is there and has another value.
func (e *Cluster) Fill(ctx context.Context, versions []*store.Version, done func(n int)) error {
	var l leases
	l.init(e)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(filling)
	var mu sync.Mutex
	// Those that expire at one time share a transaction, as its keys have one lease.
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b *store.Version) int {
		return a.Sidecar.Expire.Compare(b.Sidecar.Expire)
	})
	for len(versions) > 0 && within.Err() == nil {
		b, err := e.batch(within, versions, &l)
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		versions = versions[len(b.puts):]
		group.Go(func() error {
			if err := e.create(within, b); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done(len(b.puts))
			return nil
		})
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// batch is the keys of one transaction.
type batch struct {
	absent []*etcdserverpb.Compare
	puts   []*etcdserverpb.RequestOp
	gets   []*etcdserverpb.RequestOp
}

// batch takes as many versions as one transaction takes; at least one.
func (e *Cluster) batch(ctx context.Context, versions []*store.Version, l *leases) (*batch, error) {
	var b batch
	var lease clientv3.LeaseID
	var err error
	end := versions[0].Sidecar.Expire
	if !end.IsZero() {
		if lease, err = l.until(ctx, end); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, v := range versions {
		at, ok := e.config.Layout.Path(v.Key)
		if !ok {
			return nil, fmt.Errorf("etcd: %s has no place there", v.Key)
		}
		value, err := e.encode(ctx, &store.Change{Key: v.Key, Data: v.Data(), Sidecar: &store.Sidecar{}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Key, err)
		}
		size += len(at) + len(value)
		if len(b.puts) > 0 && (len(b.puts) == fillKeys || size > fillBytes || !v.Sidecar.Expire.Equal(end)) {
			break
		}
		key := e.prefix + at
		b.absent = append(b.absent, isAt(key, 0))
		b.puts = append(b.puts, put(key, value, lease))
		b.gets = append(b.gets, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
			RequestRange: &etcdserverpb.RangeRequest{Key: []byte(key)}}})
	}
	return &b, nil
}

// create sends a batch until it is known to be written. If its keys are there, an earlier attempt has written them
// whose answer was lost: they have the same bytes.
func (e *Cluster) create(ctx context.Context, b *batch) error {
	for end := time.Now().Add(patience); ; {
		answer, err := e.kv.Txn(ctx, &etcdserverpb.TxnRequest{Compare: b.absent, Success: b.puts, Failure: b.gets})
		err = clientv3.ContextError(ctx, err)
		switch {
		case err == nil && answer.Succeeded:
			return nil
		case err == nil:
			return b.isThere(answer)
		case !isTransient(err) || ctx.Err() != nil || time.Now().After(end):
			return fmt.Errorf("%s: %w", b.puts[0].GetRequestPut().Key, refusal(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isThere says whether the keys are there, with the values of the batch.
func (b *batch) isThere(answer *etcdserverpb.TxnResponse) error {
	for i, r := range answer.Responses {
		want, kvs := b.puts[i].GetRequestPut(), r.GetResponseRange().GetKvs()
		if len(kvs) == 0 || !bytes.Equal(kvs[0].Value, want.Value) {
			return fmt.Errorf("%s is written by somebody else", want.Key)
		}
	}
	return nil
}
