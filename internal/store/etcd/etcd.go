// Package etcd keeps the objects of a server in an etcd, which other servers may write to at the same time: other
// processes of this program, and kube-apiservers. It is the only package that uses etcd's client.
//
// # What is where
//
// etcd orders all writes and makes them durable. A store.State in this process has a copy of all of it, as the embedded
// store has, so that reads, lists and watches are served in the same way. A Writer connects the two:
//
//	Commit  → one transaction of etcd, which compares the revisions of all keys that the commit depends on (commit.go)
//	etcd    → one watch of all keys below the prefix → State.Apply, one commit for each revision (feed.go)
//
// The writer does not apply its own commits to the state; they come back by the watch, in their place among those of
// other processes. It remembers what it has sent, so that they need not be decoded again.
//
// # How new the state is
//
// The state lags behind etcd by the time that the watch takes. So
//
//   - Commit returns once the state has the commit, or the change because of which it failed (arrive).
//   - A read that has to see all that was acknowledged before it asks etcd for its revision, and waits until the state
//     has it (Fresh, newest). No data is read for that.
//   - etcd's watch tells of changes, and not of the revisions of other keys. Where the state waits for a revision that
//     no change will bring, a progress request is sent, whose answer says how far the watch is.
//
// # What is in etcd
//
// A Layout says which key and value an object has. That of the server is Kubernetes' own, so that a kube-apiserver can
// serve the same objects. The keys of one resource may be the bits of one etcd key (Bits).
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"plinth/internal/store"
)

// Layout is how objects lie in etcd.
type Layout interface {
	// Path is the key of an object below the prefix. ok is false for keys that have no place there. The path of a key
	// without a name ends with "/"; those of all objects of the resource begin with it.
	Path(k store.Key) (path string, ok bool)
	// Key is the object at a path; ok is false if it is none.
	Key(path string) (k store.Key, ok bool)
	// Encode is the value of the bytes that are stored under a key.
	Encode(k store.Key, data []byte) (value []byte, err error)
	// Decode is the bytes of a value, and a new sidecar with their stamp (store.Sidecar.Form). It may describe the bytes
	// as well: then it has a UID. The bytes are new, or parts of value, which stays as it is.
	Decode(k store.Key, value []byte) (data []byte, current *store.Sidecar, err error)
}

// Config says which etcd a Cluster is, and how to use it.
type Config struct {
	Endpoints []string    // URLs; at least one
	TLS       *tls.Config // nil: the default, for URLs of https
	Prefix    string      // of all keys, "/registry"
	Layout    Layout
	// Sealing encrypts the values, each bound to its key of etcd; nil: they are not encrypted, and those that are cannot
	// be read.
	Sealing store.Sealing
	Bits    *Bits // nil: every key of the state is one of etcd
	// Apart are resources whose keys are committed on their own, because others follow them on a watch of their own: they
	// take a change of such a key and of another one for two, and expect the order in which they would make them.
	Apart []string
	// LeaseReuse is how long objects that expire share a lease at most; 0: a minute.
	LeaseReuse time.Duration
	// CompactionInterval is how often history is compacted; 0: never, by this process.
	CompactionInterval time.Duration
	// ConfirmEvery is how often the state is compared with etcd if nobody reads from it; 0: never.
	ConfirmEvery time.Duration
	Observe      Observe
	Logger       *slog.Logger
}

// Observe are functions for metrics; each may be nil.
type Observe struct {
	// Request is called after each request: "create", "update", "delete", "txn" (of several keys), "get" (of a revision),
	// "list". resource is that of the keys, "" where there are several, or none.
	Request func(operation, resource string, took time.Duration, err error)
	// Waited is called with the time that a request waited until the state had a revision (Writer.arrive).
	Waited func(time.Duration)
	// Confirmed is called with a time when the state is known to have had all that etcd had then. Two calls may come in
	// the wrong order.
	Confirmed func(at time.Time)
	// Received is called for each event of a watch of etcd, with the resource of its key.
	Received func(resource string)
	// Lease is called when a lease gets no more keys, with their number.
	Lease func(keys int)
}

// request reports a request that began at a time.
func (o *Observe) request(operation, resource string, began time.Time, err error) {
	if o.Request != nil {
		o.Request(operation, resource, time.Since(began), err)
	}
}

// Cluster is a connection to an etcd.
type Cluster struct {
	config Config
	client *clientv3.Client
	kv     etcdserverpb.KVClient // the same connection
	prefix string                // ends with "/"
	id     uint64                // of the cluster

	streams  atomic.Int64          // of watches, so far
	unusable atomic.Pointer[error] // why the member of the newest stream cannot be used for watches; nil: it can
}

// requestTimeout bounds one request to etcd. After that its outcome is found out by reading (Writer.commit).
const requestTimeout = 10 * time.Second

// receiveWindow is how many bytes etcd may have sent that this process has not read yet, of a stream and of a
// connection. By default gRPC finds out itself how large it should be, from the time that a ping takes, which it sends
// with the answers that come: where these are the small ones of single writes, they are one in a few, and cost both
// sides. So many bytes keep a gigabit busy over 30 ms.
const receiveWindow = 4 << 20

// Connect connects to an etcd, and waits until it answers, or until ctx ends. It refuses versions that do not work.
func Connect(ctx context.Context, c Config) (*Cluster, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Cluster{config: c, prefix: path.Join("/", c.Prefix) + "/"}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Logger: zap.NewNop(),
		DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second, DialTimeout: 20 * time.Second,
		DialOptions: []grpc.DialOption{e.checkStreams(), assertOutside(), grpc.WithStaticStreamWindowSize(receiveWindow),
			grpc.WithStaticConnWindowSize(receiveWindow)},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	e.client, e.kv = client, clientv3.RetryKVClient(client)
	if e.prefix == "//" {
		e.prefix = "/"
	}
	for {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		answer, err := e.probe(soon)
		cancel()
		if err == nil {
			e.id = answer.Header.ClusterId
			if err := e.checkVersions(ctx); err != nil {
				return nil, errors.Join(err, client.Close())
			}
			return e, nil
		}
		if ctx.Err() != nil || !isTransient(err) || isUntrusted(err) {
			return nil, errors.Join(fmt.Errorf("etcd: %v does not answer: %w", c.Endpoints, err), client.Close())
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// isUntrusted says whether a connection has failed because one side does not accept the certificate of the other one,
// which waiting does not change. The client has no error of its own for it, so the prefixes of Go's TLS are looked for.
func isUntrusted(err error) bool {
	return strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "tls: ")
}

// probe reads the key that the reference reads to find out whether etcd answers; it need not exist.
func (e *Cluster) probe(ctx context.Context) (*clientv3.GetResponse, error) {
	return e.client.Get(ctx, e.prefix+"health", clientv3.WithLimit(1))
}

// Check returns nil if etcd answers before ctx ends, and can be watched.
func (e *Cluster) Check(ctx context.Context) error {
	if why := e.unusable.Load(); why != nil {
		return *why
	}
	_, err := e.probe(ctx)
	return err
}

// Size is the size of the files of the member that answers, in bytes.
func (e *Cluster) Size(ctx context.Context) (int64, error) {
	status, err := e.client.Status(ctx, e.config.Endpoints[0])
	if err != nil {
		return 0, err
	}
	return status.DbSize, nil
}

// Close closes the connection. Stores that were opened over it are closed before.
func (e *Cluster) Close() error { return e.client.Close() }

// Writer is the store.Writer, and the store.Others, of a state that follows an etcd.
type Writer struct {
	*Cluster
	state  *store.State
	leases leases

	watching atomic.Pointer[watching] // that feeds the state

	// ctx ends when the writer is closed or broken off, with the reason as its cause. Whatever waits for etcd or for the
	// state waits no longer than ctx.
	ctx  context.Context
	quit context.CancelCauseFunc
	work sync.WaitGroup

	life    sync.RWMutex // held for reading by every write that begins
	closed  bool
	closing chan struct{}  // closed with it
	commits sync.WaitGroup // those that have begun
	turns   chan struct{}  // of capacity 1; full while a commit changes bits
	now     func() time.Time

	mu      sync.Mutex
	sent    map[string][]*sent // by path: the changes of transactions whose outcome is not known
	reloads int64              // how often the state has missed changes
	broken  error              // why nothing is written any more

	witness witness
	recalls recall
	reads   reads

	confirmed atomic.Int64 // the latest time given to confirm, in ns since 1970
}

// Open opens a store with the objects that etcd has now. loaded is called when it has them, before it follows etcd; it
// may be nil. Open returns ctx.Err() if ctx ends first.
func (e *Cluster) Open(ctx context.Context, c store.Config, loaded func(*store.State)) (*store.Store, error) {
	c.Sealing, c.Opened = e.config.Sealing, e.config.Layout.Decode
	w := &Writer{Cluster: e, sent: map[string][]*sent{}, closing: make(chan struct{}),
		turns: make(chan struct{}, 1), now: c.Now, witness: newWitness(),
		recalls: newRecall()}
	if w.now == nil {
		w.now = time.Now
	}
	w.leases.init(e)
	began := time.Now()
	horizon, err := e.oldest(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd: the history cannot be read: %w", err)
	}
	w.state, err = e.load(ctx, c, "", horizon, newReplayer(w))
	if err != nil {
		return nil, fmt.Errorf("etcd: the objects cannot be loaded: %w", err)
	}
	if loaded != nil {
		loaded(w.state)
	}
	w.ctx, w.quit = context.WithCancelCause(context.Background())
	w.confirm(began)
	w.work.Go(w.follow)
	if e.config.ConfirmEvery > 0 {
		w.work.Go(w.keepConfirming)
	}
	if e.config.CompactionInterval > 0 {
		w.work.Go(w.compactor)
	}
	return &store.Store{State: w.state, Writer: w, Others: w}, nil
}

// Peek returns the objects of one resource as they are now, in a state that nobody changes.
func (e *Cluster) Peek(ctx context.Context, c store.Config, resource string) (*store.State, error) {
	under, ok := e.config.Layout.Path(store.Key{Resource: resource})
	if !ok {
		return nil, fmt.Errorf("etcd: %s has no place there", resource)
	}
	return e.load(ctx, c, under, 0, nil)
}

// Healthy is store.Writer.Healthy.
func (w *Writer) Healthy() error {
	w.life.RLock()
	defer w.life.RUnlock()
	return w.healthy()
}

// healthy is Healthy for a caller that holds life.
func (w *Writer) healthy() error {
	if w.closed {
		return store.ErrClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

// breakOff makes the writer refuse all that follows: etcd is not what it was. It ends all that waits, as no change will
// come that it waits for: commits, reads, and watches.
func (w *Writer) breakOff(why error) {
	w.mu.Lock()
	first := w.broken == nil
	if first {
		w.broken = fmt.Errorf("%w: %w", store.ErrClosed, why)
	}
	w.mu.Unlock()
	if first {
		w.config.Logger.Error("nothing is written any more", "error", why)
		w.quit(w.broken)
	}
}

// ended is why the writer takes and waits for nothing any more; nil while it does.
func (w *Writer) ended() error { return context.Cause(w.ctx) }

// Close is store.Writer.Close. Commits that have begun may take as long as a request to etcd: then they end without
// their outcome, so that a server can be stopped whose etcd has stopped.
func (w *Writer) Close() error {
	w.life.Lock()
	again := w.closed
	w.closed = true
	w.life.Unlock()
	if again {
		return nil
	}
	close(w.closing)
	finished := make(chan struct{})
	go func() {
		w.commits.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-w.ctx.Done():
	case <-time.After(requestTimeout):
	}
	w.quit(store.ErrClosed)
	<-finished
	w.work.Wait()
	return nil
}
