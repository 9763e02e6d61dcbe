package etcd

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"plinth/internal/store"
)

// ownStream returns a context whose watch has a stream of its own. The client puts all watches whose contexts have
// equal metadata into one stream, and the answer to a progress request is for a stream: one that was asked for an
// earlier watch would be taken for an answer about this one, before its first changes.
func (e *Cluster) ownStream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "watch", strconv.FormatInt(e.streams.Add(1), 10))
}

// follow applies all changes to the state, from its revision on, and ends the state when the writer is closed or broken
// off. After a lost connection etcd's client resumes the watch by itself, behind the last revision that it delivered.
//
//	state = the objects of etcd at the state's revision
func (w *Writer) follow() {
	defer w.state.End()
	for w.ctx.Err() == nil {
		w.followOnce()
		select {
		case <-w.ctx.Done():
		case <-time.After(progressEvery):
		}
	}
}

// watching is a watch of etcd.
type watching struct {
	ctx   context.Context
	stop  context.CancelFunc
	heard atomic.Int64 // when the last answer came, or the watch was begun, in ns since 1970
}

// hear records that etcd has answered.
func (w *watching) hear() { w.heard.Store(time.Now().UnixNano()) }

// silentSince says whether nothing has come since a time.
func (w *watching) silentSince(t time.Time) bool { return w.heard.Load() < t.UnixNano() }

// followOnce follows etcd until its watch ends.
func (w *Writer) followOnce() {
	// With WithRequireLeader, a watch whose member has lost its leader ends, and is resumed at another member.
	watch := &watching{}
	watch.ctx, watch.stop = context.WithCancel(w.ownStream(clientv3.WithRequireLeader(w.ctx)))
	defer watch.stop()
	watch.hear()
	w.watching.Store(watch)
	changes := w.client.Watch(watch.ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.state.Revision()+1),
		clientv3.WithProgressNotify())
	for answer := range changes {
		watch.hear()
		err := answer.Err()
		if errors.Is(err, rpctypes.ErrCompacted) {
			err = w.reload()
		} else if err == nil {
			err = w.receive(&answer)
		}
		if w.ctx.Err() != nil {
			return
		}
		if err != nil {
			w.config.Logger.Warn("the watch of etcd has ended, and is begun again", "error", err)
			return
		}
	}
}

// receive applies the changes of one answer of the watch, which has whole revisions.
func (w *Writer) receive(answer *clientv3.WatchResponse) error {
	if err := w.same(answer.Header.ClusterId, answer.Header.Revision, w.state.Revision()); err != nil {
		return err
	}
	if answer.IsProgressNotify() {
		w.advance(answer.Header.Revision)
		return nil
	}
	for events := answer.Events; len(events) > 0; {
		revision := events[0].Kv.ModRevision
		n := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != revision })
		if n < 0 {
			n = len(events)
		}
		// One after the other: how an object is described may depend on a definition that an earlier revision has.
		if err := w.apply(revision, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// advance moves the state to a revision up to which it has all changes.
func (w *Writer) advance(revision int64) {
	if revision > w.state.Revision() {
		w.state.Apply(&store.Commit{Revision: revision, Time: w.now().UnixNano()})
	}
}

// apply applies the changes of one revision.
func (w *Writer) apply(revision int64, events []*clientv3.Event) error {
	if revision <= w.state.Revision() {
		return nil // the state has it: each watch begins one revision early (watchStream.SendMsg)
	}
	c := &store.Commit{Revision: revision, Time: w.now().UnixNano()}
	for _, e := range events {
		at := strings.TrimPrefix(string(e.Kv.Key), w.prefix)
		k, ok := w.config.Layout.Key(at)
		if !ok {
			continue
		}
		if told := w.config.Observe.Received; told != nil {
			told(k.Resource)
		}
		r := &store.Record{Key: k, Revision: revision}
		if r.Old, _ = w.state.Get(k); r.Old != nil {
			r.Key = r.Old.Key
		}
		base := int64(0)
		if r.Old != nil {
			base = r.Old.Revision
		}
		mine := w.received(at, e.Kv.Value, e.Type == mvccpb.Event_DELETE, base, revision)
		switch {
		case e.Type == mvccpb.Event_DELETE:
			if r.Old == nil {
				continue
			}
		case mine != nil:
			r.New = w.state.NewVersion(r.Key, revision, mine.data, mine.sidecar)
		default:
			r.New = w.version(r.Key, e.Kv)
		}
		c.Records = append(c.Records, r)
		if b := w.whole(k); b != nil {
			sn, err := w.state.Snapshot(0)
			if err != nil {
				return err
			}
			c.Records = append(c.Records, b.records(b.live(sn), r.New, revision, false)...)
		}
	}
	w.state.Apply(c)
	return nil
}

// decryptPatience is how long a change waits until its value is decrypted. All changes after it, of all types, wait
// with it, as they are applied in their order. When it is over the object is unreadable, until it has been recovered
// (store.Recover): who reads it gets an error, and nobody takes it for gone. To hold back the changes of its type alone
// would not do: the state would lack them at a revision that it has. A plugin takes milliseconds, or some hundred if it
// asks a service elsewhere, and one call is for all values of a key.
const decryptPatience = 500 * time.Millisecond

// version is the version of a key and value that another process has written. A value that cannot be decoded is an
// unreadable object.
func (w *Writer) version(k store.Key, kv *mvccpb.KeyValue) *store.Version {
	ctx := w.ctx
	if w.config.Sealing != nil {
		soon, cancel := context.WithTimeout(ctx, decryptPatience)
		defer cancel()
		ctx = soon
	}
	data, current := w.decode(ctx, k, kv.Value)
	return w.state.NewVersion(k, kv.ModRevision, data, w.state.DescribeStored(k, data, current))
}

// encrypted is the beginning of values that are encrypted.
var encrypted = []byte("k8s:enc:")

// errEncrypted is the reference's error of a value that is encrypted, where nothing decrypts.
var errEncrypted = errors.New("identity transformer tried to read encrypted data")

// decode returns the bytes that a value stands for, and a sidecar with at least what the bytes do not say: the stamp
// and the key of the encryption. If the value cannot be read, it returns the value as it is, and the sidecar says why.
func (e *Cluster) decode(ctx context.Context, k store.Key, value []byte) (data []byte, current *store.Sidecar) {
	plain, sealedBy := value, uint32(0)
	var err error
	if e.config.Sealing != nil && e.whole(k) == nil {
		if plain, sealedBy, err = e.config.Sealing.Open(ctx, "", k, value); err != nil {
			return value, &store.Sidecar{SealedBy: sealedBy, Undecrypted: true, Unreadable: err}
		}
	} else if bytes.HasPrefix(value, encrypted) {
		return value, &store.Sidecar{Unreadable: errEncrypted}
	}
	if data, current, err = e.config.Layout.Decode(k, plain); err != nil {
		return value, &store.Sidecar{SealedBy: sealedBy, Unreadable: err}
	}
	current.SealedBy = sealedBy
	return data, current
}

// sent is a change that this process has sent to etcd, from before it is sent until its outcome is known.
type sent struct {
	value   []byte // nil: a deletion
	base    int64  // the revision that it replaces, 0: none; anyBase: whatever there is
	data    []byte
	sidecar *store.Sidecar
	// unique says that no other process writes this value: an encrypted one has a random part, and a new object a UID
	// that was made for it.
	unique bool
	// revisions are those at which an equal change was received; one that was made, removed and made again has several.
	// Writer.mu guards them.
	revisions []int64
}

// anyBase is the base of a change without a precondition on its key.
const anyBase = -1

// received returns a change that this process has sent and that is equal to one that the watch delivers; nil if there
// is none. It saves decoding the value: equal bytes have the same sidecar, whoever has written them.
//
// The watch may deliver the change before etcd answers the transaction, and several transactions may have sent an equal
// one. So all of these get the revision; which of them was carried out is found out from the answers (Writer.commit).
func (w *Writer) received(at string, value []byte, deleted bool, base, revision int64) (equal *sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent[at] {
		if (s.value == nil) == deleted && (s.base == base || s.base == anyBase) &&
			(deleted || bytes.Equal(s.value, value)) {
			s.revisions = append(s.revisions, revision)
			equal = s
		}
	}
	return equal
}

// receivedAfter is received for a state that has missed changes: the value need not be the first one after the revision
// that the change was to replace.
func (w *Writer) receivedAfter(at string, value []byte, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent[at] {
		if s.value != nil && s.base < revision && bytes.Equal(s.value, value) {
			s.revisions = append(s.revisions, revision)
		}
	}
}
