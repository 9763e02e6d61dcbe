package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"plinth/internal/store"
)

// process is one of the processes: what its writer takes for a client of etcd, and the writer.
type process struct {
	etcdserverpb.KVClient    // Range and Txn
	etcdserverpb.LeaseClient // LeaseGrant

	*simulation
	number int
	store  *store.Store
	cursor *store.Cursor // a watch since the beginning
	seen   []string      // what it has told
	seenTo int64         // the revision of the last one
	uids   int           // that it has given
	other  *process
	outcomes
}

// outcomes are what the clients of a process were told.
type outcomes struct {
	told    sync.Mutex
	acked   []int64 // the revisions of their commits
	unknown int     // commits whose outcome they were not told
	failed  []error // what they should not have been told
}

func (o *outcomes) commit(revision int64) {
	o.told.Lock()
	defer o.told.Unlock()
	o.acked = append(o.acked, revision)
}

func (o *outcomes) doubt() {
	o.told.Lock()
	defer o.told.Unlock()
	o.unknown++
}

func (o *outcomes) fail(format string, args ...any) {
	o.told.Lock()
	defer o.told.Unlock()
	o.failed = append(o.failed, fmt.Errorf(format, args...))
}

// begin waits until a client of the process may begin.
func (p *process) begin(client int) {
	_, _ = p.arrive(context.Background(), &request{name: fmt.Sprintf("begin %d", client), by: p.number, always: true,
		do: func() (any, error) { return nil, nil }})
}

// Range implements etcdserverpb.KVClient.
func (p *process) Range(ctx context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (
	*etcdserverpb.RangeResponse, error) {
	a, err := p.arrive(ctx, &request{name: "range " + keyText(r.Key), by: p.number,
		do: func() (any, error) { return p.read(r) }})
	answer, _ := a.(*etcdserverpb.RangeResponse)
	return answer, err
}

// Txn implements etcdserverpb.KVClient.
func (p *process) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (
	*etcdserverpb.TxnResponse, error) {
	a, err := p.arrive(ctx, &request{name: "txn " + txnText(r), by: p.number,
		do: func() (any, error) {
			if p.restricted && strings.Contains(txnText(r), "plinth_") {
				return nil, rpctypes.ErrGRPCPermissionDenied
			}
			return p.transact(r, p.number)
		}})
	answer, _ := a.(*etcdserverpb.TxnResponse)
	return answer, err
}

// keyText is a key without what is random in it: that of a witness and those of recalls name their process.
func keyText(key []byte) string {
	text := strings.TrimPrefix(string(key), "/r/r/")
	if folder, rest, ok := strings.Cut(text, "/"); ok && strings.HasPrefix(folder, "plinth_") {
		_, number, _ := strings.Cut(rest, "/")
		return folder + "/" + number
	}
	return text
}

// txnText says what a transaction writes.
func txnText(r *etcdserverpb.TxnRequest) (text string) {
	for _, c := range r.Compare {
		text += fmt.Sprintf("%s@%d ", keyText(c.Key), c.GetModRevision())
	}
	for _, op := range r.Success {
		if put := op.GetRequestPut(); put != nil {
			text += fmt.Sprintf("%s=%s ", keyText(put.Key), plainOf(put.Value))
		}
	}
	return text
}

// LeaseGrant implements etcdserverpb.LeaseClient.
func (p *process) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (
	*etcdserverpb.LeaseGrantResponse, error) {
	a, err := p.arrive(ctx, &request{by: p.number, name: "lease", do: func() (any, error) {
		return &etcdserverpb.LeaseGrantResponse{Header: p.header(), ID: p.grant(r.TTL), TTL: r.TTL}, nil
	}})
	answer, _ := a.(*etcdserverpb.LeaseGrantResponse)
	return answer, err
}

// Watch implements clientv3.Watcher. etcd's client begins a watch that was cut again, behind the last revision that it
// has delivered, and so does this one.
func (p *process) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	w := &stream{by: p.number, ctx: ctx, id: streamOf(ctx), from: key, end: string(op.RangeBytes()), next: op.Rev(),
		created: op.IsCreatedNotify(), past: op.IsPrevKV(), to: make(chan clientv3.WatchResponse, 1000)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = append(p.streams, w)
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.close(p.simulation)
	})
	return w.to
}

// streamOf is the stream of a watch: those of contexts with equal metadata have one (Cluster.ownStream).
func streamOf(ctx context.Context) string {
	values, _ := metadata.FromOutgoingContext(ctx)
	return strings.Join(values.Get("watch"), " ")
}

// close ends a watch.
func (w *stream) close(s *simulation) {
	if slices.Contains(s.streams, w) {
		close(w.to)
		s.streams = slices.DeleteFunc(s.streams, func(other *stream) bool { return other == w })
	}
}

// RequestProgress implements clientv3.Watcher.
func (p *process) RequestProgress(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.streams {
		if w.by == p.number && w.id == streamOf(ctx) {
			w.progress = true
		}
	}
	return nil
}

// Close implements clientv3.Watcher.
func (p *process) Close() error { return nil }

// start makes a process, with a writer that has what the model has.
func (s *simulation) start(number int) (p *process, err error) {
	p = &process{simulation: s, number: number}
	e := &Cluster{prefix: "/r/", id: s.cluster, kv: p, config: Config{Prefix: "/r", Layout: bare{},
		Bits: bitsOfModel(), ConfirmEvery: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}}
	if s.sealed {
		e.config.Sealing = &sealing{by: number}
	}
	e.client = &clientv3.Client{KV: clientv3.NewKVFromKVClient(p, nil), Watcher: p,
		Lease: clientv3.NewLeaseFromLeaseClient(p, nil, time.Second)}
	p.store, err = e.Open(s.ctx, store.Config{
		Describe:     func(k store.Key, data []byte) *store.Sidecar { return sidecarOf(k, data) },
		HistoryBytes: 1 << 20, HistoryAge: 24 * time.Hour,
	}, nil)
	return p, err
}

// bare is a layout for keys of one resource, whose values are their bytes.
type bare struct{}

func (bare) Path(k store.Key) (string, bool) { return "r/" + k.Name, true }
func (bare) Key(path string) (store.Key, bool) {
	return store.Key{Resource: "r", Name: strings.TrimPrefix(path, "r/")}, true
}
func (bare) Encode(_ store.Key, data []byte) ([]byte, error) { return data, nil }
func (bare) Decode(_ store.Key, v []byte) ([]byte, *store.Sidecar, error) {
	if string(v) == damage {
		return nil, nil, errDamaged
	}
	return v, &store.Sidecar{}, nil
}

// sealing marks what would be encrypted, and binds it to its key. Like what is encrypted, no two values are equal.
type sealing struct {
	by     int
	sealed atomic.Int64
}

func (s *sealing) Seal(context.Context, string) (*store.Seal, error) {
	return &store.Seal{ID: 1, Append: func(dst []byte, _ string, k store.Key, plain []byte) []byte {
		return fmt.Appendf(dst, "%s%d.%d|%s|%s", sealMark, s.by, s.sealed.Add(1), k.Name, plain)
	}}, nil
}

func (s *sealing) Open(_ context.Context, _ string, k store.Key, value []byte) ([]byte, uint32, error) {
	text, ok := strings.CutPrefix(string(value), sealMark)
	if !ok {
		return value, 0, nil
	}
	_, text, _ = strings.Cut(text, "|")
	name, plain, _ := strings.Cut(text, "|")
	if name != k.Name {
		return nil, 0, fmt.Errorf("it is encrypted for %s", name)
	}
	return []byte(plain), 1, nil
}

func (s *sealing) Current(string) (uint32, bool) { return 1, true }

// sealMark is how values begin that are encrypted.
const sealMark = "encrypted "

// plainOf is a value of etcd without its encryption.
func plainOf(value []byte) string {
	if text := string(value); strings.HasPrefix(text, sealMark) {
		return strings.SplitN(text, "|", 3)[2]
	}
	return string(value)
}
