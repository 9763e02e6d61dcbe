package etcd

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/internal/store"
)

// etcd counts all keys of a range for each page of it, those of later pages included: n pages cost n²/2 looks at its
// index, so that pages should be large. But three of them are in memory at a time, and values have between a hundred
// bytes and a megabyte. So the number of keys of a page follows from the size of those before it.
const (
	firstPage = 1000    // keys
	pageBytes = 8 << 20 // what a page should have
	minPage   = 50
	maxPage   = 10_000 // as many as the reference asks for
)

// nextPage is how many keys are asked for after a page.
func nextPage(kvs []*mvccpb.KeyValue) int64 {
	bytes := 0
	for _, kv := range kvs {
		bytes += len(kv.Key) + len(kv.Value)
	}
	return int64(min(max(minPage, len(kvs)*pageBytes/max(bytes, 1)), maxPage))
}

// page is consecutive keys of etcd at the revision of the load.
type page struct {
	kvs      []*mvccpb.KeyValue
	revision int64
	header   *etcdserverpb.ResponseHeader // of the answer; nil with an error
	err      error
}

// pages reads all keys whose path begins with under, at one revision: that of the first page. It reads ahead by one
// page. It ends with the context.
func (e *Cluster) pages(ctx context.Context, under string) <-chan page {
	pages := make(chan page, 1)
	go func() {
		defer close(pages)
		from, end := e.prefix+under, clientv3.GetPrefixRangeEnd(e.prefix+under)
		for revision, keys := int64(0), int64(firstPage); ; {
			began := time.Now()
			answer, err := e.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(keys),
				clientv3.WithRev(revision))
			e.config.Observe.request("list", "", began, err)
			p := page{err: err}
			if err == nil {
				if revision == 0 {
					revision = answer.Header.Revision
				}
				p.kvs, p.revision, p.header = answer.Kvs, revision, answer.Header
			}
			select {
			case pages <- p:
			case <-ctx.Done():
				return
			}
			if err != nil || !answer.More {
				return
			}
			from, keys = string(answer.Kvs[len(answer.Kvs)-1].Key)+"\x00", nextPage(answer.Kvs)
		}
	}()
	return pages
}

// load makes a state of all keys whose path begins with under. If the history of the revision at which they are read is
// compacted meanwhile, they are read again.
func (e *Cluster) load(ctx context.Context, c store.Config, under string, horizon int64, log store.Replayer) (
	*store.State, error) {
	for {
		state, err := e.loadOnce(ctx, c, under, horizon, log)
		if !errors.Is(err, rpctypes.ErrCompacted) || ctx.Err() != nil {
			return state, err
		}
	}
}

func (e *Cluster) loadOnce(ctx context.Context, c store.Config, under string, horizon int64, log store.Replayer) (
	*store.State, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pages := e.pages(ctx, under)
	first, ok := <-pages
	if !ok {
		return nil, ctx.Err()
	}
	if first.err != nil {
		return nil, first.err
	}
	from := &store.Checkpoint{Revision: first.revision, Window: store.Window{Horizon: min(horizon, first.revision)}}
	if horizon == 0 {
		from.Window.Horizon = first.revision
	}
	from.Versions = func(yield func(*store.Version, error) bool) {
		for p := first; ; {
			if p.err != nil {
				yield(nil, p.err)
				return
			}
			for _, v := range e.decodeAll(ctx, p.kvs) {
				if v != nil && !e.yieldAll(v, yield) {
					return
				}
			}
			var more bool
			if p, more = <-pages; !more {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
				}
				return
			}
		}
	}
	return store.NewState(c, from, log)
}

// yieldAll yields a version, and if it is a bitmap, those of its bits.
func (e *Cluster) yieldAll(v *store.Version, yield func(*store.Version, error) bool) bool {
	if !yield(v, nil) {
		return false
	}
	if b := e.whole(v.Key); b != nil {
		for _, bit := range b.versions(v) {
			if !yield(bit, nil) {
				return false
			}
		}
	}
	return true
}

// decodeAll decodes values, on all processors. A key that is no object has a nil version.
func (e *Cluster) decodeAll(ctx context.Context, kvs []*mvccpb.KeyValue) []*store.Version {
	versions := make([]*store.Version, len(kvs))
	workers := min(runtime.GOMAXPROCS(0), 1+len(kvs)/64)
	var wait sync.WaitGroup
	for n := range workers {
		wait.Go(func() {
			for i := n; i < len(kvs); i += workers {
				if k, ok := e.key(kvs[i]); ok {
					versions[i] = e.undescribed(ctx, k, kvs[i])
				}
			}
		})
	}
	wait.Wait()
	return versions
}

// key is the key of what etcd has under a key of its own; false: it is of no object.
func (e *Cluster) key(kv *mvccpb.KeyValue) (store.Key, bool) {
	return e.config.Layout.Key(strings.TrimPrefix(string(kv.Key), e.prefix))
}

// undescribed is the version of a key and value, whose sidecar has only what is not part of the bytes: the state
// describes what it loads.
func (e *Cluster) undescribed(ctx context.Context, k store.Key, kv *mvccpb.KeyValue) *store.Version {
	data, current := e.decode(ctx, k, kv.Value)
	return store.NewVersion(k, kv.ModRevision, data, current)
}

// reload brings a state that has missed changes, because etcd compacted them, to what etcd has now. The changes in
// between are not known, so all watches end (store.State.Restart). Another etcd in the place of the one that the state
// follows may say that it has compacted them, too: nothing is taken from it.
func (w *Writer) reload() error {
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	now := map[store.Key]*mvccpb.KeyValue{}
	revision, had := int64(0), w.state.Revision()
	for p := range w.pages(ctx, "") {
		if p.err != nil {
			return p.err
		}
		if err := w.same(p.header.ClusterId, p.header.Revision, had); err != nil {
			return err
		}
		revision = p.revision
		for _, kv := range p.kvs {
			if k, ok := w.key(kv); ok {
				now[k] = kv
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if revision == 0 {
		return errors.New("etcd: no revision")
	}
	c, err := w.missed(now, revision)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.reloads++ // before the state has what a commit is judged by
	w.mu.Unlock()
	w.config.Logger.Warn("etcd has compacted changes that were not received; all watches begin again",
		"changes", len(c.Records), "revision", revision)
	w.state.Restart(c)
	return nil
}

// missed is the commit that brings the state to what etcd has at a revision. A key that has changed gets the revision
// of its last change. The revision of a deletion is not known; it gets that of the commit.
func (w *Writer) missed(now map[store.Key]*mvccpb.KeyValue, revision int64) (*store.Commit, error) {
	c := &store.Commit{Revision: revision, Time: w.now().UnixNano()}
	before, err := w.state.Snapshot(0)
	if err != nil {
		return nil, err
	}
	change := func(k store.Key, old *store.Version, kv *mvccpb.KeyValue) {
		r := &store.Record{Key: k, Revision: revision, Old: old}
		if kv != nil {
			r.Revision = kv.ModRevision
			w.receivedAfter(strings.TrimPrefix(string(kv.Key), w.prefix), kv.Value, kv.ModRevision)
			r.New = w.version(k, kv)
		}
		c.Records = append(c.Records, r)
		if b := w.whole(k); b != nil {
			c.Records = append(c.Records, b.records(b.live(before), r.New, r.Revision, true)...)
		}
	}
	before.Scan(func(v *store.Version) bool {
		if w.bits(v.Key) != nil {
			return true // it changes with the bitmap
		}
		kv := now[v.Key]
		if delete(now, v.Key); kv == nil || kv.ModRevision != v.Revision {
			change(v.Key, v, kv)
		}
		return true
	})
	for k, kv := range now {
		change(k, nil, kv)
	}
	slices.SortStableFunc(c.Records, func(a, b *store.Record) int { return cmp.Compare(a.Revision, b.Revision) })
	return c, nil
}
