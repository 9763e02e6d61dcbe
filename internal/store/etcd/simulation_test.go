package etcd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"plinth/internal/store"
)

var (
	simulations = flag.Int("simulations", 500, "random runs of TestSimulation, besides those that try every order")
	deviations  = flag.Int("deviations", 1, "how many events of a run are out of turn, when every order is tried")
	seed        = flag.Uint64("seed", 1, "of the random runs of TestSimulation")
)

// A simulation runs the writers of two processes on a model of etcd, and decides what happens when: which request is
// carried out next, which answer is lost, which watch is told of which change.
//
// The problem: what goes wrong in a distributed store goes wrong in one order of events out of thousands, and a test on
// a real etcd tries the orders that it happens to get. Here all goroutines are in a bubble (testing/synctest). When all
// of them wait, the requests and streams that the model has are all that can happen next, and one of them is chosen:
//
//	run = a list of choices, each among the events that were possible then
//
// Choice 0 is what would happen if nothing went wrong: the oldest event. A run deviates from that a few times. All runs
// with a number of deviations are tried, and random ones with more.
//
// The code under test is the writer. The model is in the place of the connection of etcd's client, and of the client's
// watches.
type simulation struct {
	t *testing.T
	*model
	program func(*process)
	choose  func(possible []event) int

	mu      sync.Mutex
	pending []*request
	streams []*stream

	compactions, expiries, leaders int  // changes of these that may still happen
	restricted                     bool // the processes may use no key outside of their prefix; then no request comes late
	log                            []string
}

// request is a request of a process that has arrived at the model.
type request struct {
	by     int
	name   string // which decides among those that arrive at the same time
	at     time.Time
	do     func() (any, error)
	answer chan result
	orphan bool // nobody waits for its answer, and it may still be carried out
}

type result struct {
	answer any
	err    error
}

// event is something that can happen.
type event struct {
	name string
	run  func()
}

// arrive waits until a request is answered.
func (s *simulation) arrive(ctx context.Context, r *request) (any, error) {
	r.at, r.answer = time.Now(), make(chan result, 1)
	s.mu.Lock()
	s.pending = append(s.pending, r)
	s.mu.Unlock()
	select {
	case a := <-r.answer:
		return a.answer, a.err
	case <-ctx.Done():
		s.mu.Lock()
		r.orphan = true
		s.mu.Unlock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

var errLost = status.Error(codes.Unavailable, "the connection is lost")

// possible are the events that can happen now, those that would happen if nothing went wrong first.
func (s *simulation) possible() (all []event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.pending, func(a, b *request) int {
		return cmp.Or(a.lateness()-b.lateness(), a.at.Compare(b.at), cmp.Compare(a.by, b.by), cmp.Compare(a.name, b.name))
	})
	var wrong []event
	add := func(list *[]event, name string, run func()) { *list = append(*list, event{name, run}) }
	for _, r := range s.pending {
		name := fmt.Sprintf("%s of %d", r.name, r.by)
		if r.orphan {
			add(&all, "late "+name, func() { s.drop(r); _, _ = r.do() })
			add(&wrong, "never "+name, func() { s.drop(r) })
			continue
		}
		add(&all, name, func() {
			s.drop(r)
			answer, err := r.do()
			r.answer <- result{answer, err}
		})
		add(&wrong, "lost "+name, func() { s.drop(r); r.answer <- result{nil, errLost} })
		add(&wrong, "unanswered "+name, func() {
			s.drop(r)
			_, _ = r.do()
			r.answer <- result{nil, errLost}
		})
		if !s.restricted {
			add(&wrong, "delayed "+name, func() {
				r.orphan = true
				r.answer <- result{nil, errLost}
			})
		}
	}
	slices.SortStableFunc(s.streams, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.id, b.id))
	})
	for _, w := range s.streams {
		if w.due(s.model) {
			add(&all, fmt.Sprintf("watch of %d", w.by), func() { s.send(w, false) })
			add(&wrong, fmt.Sprintf("whole watch of %d", w.by), func() { s.send(w, true) })
		}
		if w.progress {
			add(&wrong, fmt.Sprintf("lost progress of %d", w.by), func() { w.progress = false })
		}
		if s.leaders > 0 && w.due(s.model) {
			// Its member has lost its leader, and the watch ends.
			add(&wrong, fmt.Sprintf("no leader for %d", w.by), func() {
				s.leaders--
				s.mu.Lock()
				defer s.mu.Unlock()
				w.close(s)
			})
		}
	}
	if s.compactions > 0 && s.revision > s.compacted+1 {
		add(&wrong, "compaction", func() { s.compactions--; s.compacted = s.revision })
	}
	// Leases last longer than a request can be under way.
	late := slices.ContainsFunc(s.pending, func(r *request) bool { return r.orphan })
	if s.expiries > 0 && len(s.leases) > 0 && !late {
		add(&wrong, "leases end", func() { s.expiries--; s.expire() })
	}
	if len(all) > 0 {
		add(&wrong, "time", func() { time.Sleep(3 * time.Second) })
	}
	return append(all, wrong...)
}

// lateness orders the requests whose answer nobody waits for behind all others.
func (r *request) lateness() int {
	if r.orphan {
		return 1
	}
	return 0
}

func (s *simulation) drop(r *request) {
	s.pending = slices.DeleteFunc(s.pending, func(other *request) bool { return other == r })
}

// mostSteps is how many events a run has at most, and longest how long nothing may happen in it.
const (
	mostSteps = 2000
	longest   = 5 * time.Minute
)

// until lets events happen until something is done, and returns an error if that does not come to an end.
func (s *simulation) until(done <-chan struct{}) error {
	for steps, idle := 0, time.Duration(0); steps < mostSteps && idle < longest; {
		synctest.Wait()
		select {
		case <-done:
			return nil
		default:
		}
		if !s.normal() {
			wait := max(time.Millisecond, idle)
			time.Sleep(wait)
			idle += wait
			continue
		}
		all := s.possible()
		next := all[s.choose(all)]
		s.log = append(s.log, next.name)
		next.run()
		steps, idle = steps+1, 0
	}
	return errors.New("it does not come to an end")
}

// normal says whether something can happen without anything going wrong.
func (s *simulation) normal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) > 0 || slices.ContainsFunc(s.streams, func(w *stream) bool { return w.due(s.model) })
}

// process is one of the processes: what its writer takes for a client of etcd, and the writer.
type process struct {
	etcdserverpb.KVClient    // Range and Txn
	etcdserverpb.LeaseClient // LeaseGrant

	*simulation
	number  int
	store   *store.Store
	cursor  *store.Cursor // a watch since the beginning
	acked   []int64       // the revisions of its commits
	unknown int           // commits whose outcome it was not told
	uids    int           // that it has given
	other   *process
	failed  []error
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
			text += fmt.Sprintf("%s=%s ", keyText(put.Key), put.Value)
		}
	}
	return text
}

// LeaseGrant implements etcdserverpb.LeaseClient.
func (p *process) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (
	*etcdserverpb.LeaseGrantResponse, error) {
	a, err := p.arrive(ctx, &request{by: p.number, name: "lease", do: func() (any, error) {
		p.lastLease++
		p.leases[p.lastLease] = true
		return &etcdserverpb.LeaseGrantResponse{Header: p.header(), ID: p.lastLease, TTL: r.TTL}, nil
	}})
	answer, _ := a.(*etcdserverpb.LeaseGrantResponse)
	return answer, err
}

// Watch implements clientv3.Watcher. etcd's client begins a watch that was cut again, behind the last revision that it
// has delivered, and so does this one.
func (p *process) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	w := &stream{by: p.number, ctx: ctx, id: streamOf(ctx), from: key, end: string(op.RangeBytes()), next: op.Rev(),
		created: op.IsCreatedNotify(), to: make(chan clientv3.WatchResponse, 1000)}
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
		Logger: slog.New(slog.DiscardHandler)}}
	e.client = &clientv3.Client{KV: clientv3.NewKVFromKVClient(p, nil), Watcher: p,
		Lease: clientv3.NewLeaseFromLeaseClient(p, nil, time.Second)}
	p.store, err = e.Open(context.Background(), store.Config{
		Describe:     func(k store.Key, data []byte) *store.Sidecar { return sidecarOf(k, data) },
		HistoryBytes: 1 << 20, Now: time.Now,
	}, nil)
	if err == nil {
		p.cursor, err = p.store.WatchAll(context.Background(), p.store.Revision())
	}
	return p, err
}

// bare is a layout for keys of one resource, whose values are their bytes.
type bare struct{}

func (bare) Path(k store.Key) (string, bool) { return "r/" + k.Name, true }
func (bare) Key(path string) (store.Key, bool) {
	return store.Key{Resource: "r", Name: strings.TrimPrefix(path, "r/")}, true
}
func (bare) Encode(_ store.Key, data []byte) ([]byte, error)      { return data, nil }
func (bare) Decode(_ store.Key, v []byte) ([]byte, uint64, error) { return v, 0, nil }

// The keys that the processes write. The value of an owner is its UID, which no other object has.
var (
	counter = store.Key{Resource: "r", Name: "counter"}
	shared  = store.Key{Resource: "r", Name: "shared"}
	token   = store.Key{Resource: "r", Name: "token"}
	owner   = store.Key{Resource: "r", Name: "owner"}
	child   = store.Key{Resource: "r", Name: "child"}
	left    = store.Key{Resource: "r", Name: "left"}
	right   = store.Key{Resource: "r", Name: "right"}
)

var simulated = []store.Key{counter, shared, token, owner, child, left, right}

// sidecarOf describes a value.
func sidecarOf(k store.Key, data []byte) *store.Sidecar {
	if k == owner {
		return &store.Sidecar{UID: string(data)}
	}
	return &store.Sidecar{}
}

// programs are what the processes do in a run: each of them the same.
var programs = []func(*process){(*process).program, (*process).owners}

// program is what a process does: it adds to a counter and writes its name, as the other one does; and it makes and
// removes an object that is the same whoever has made it.
func (p *process) program() {
	add := func(live *store.Version) []byte {
		n := 0
		if live != nil {
			n, _ = strconv.Atoi(string(live.Data()))
		}
		return []byte(strconv.Itoa(n + 1))
	}
	p.write(counter, add)
	p.write(token, func(live *store.Version) []byte {
		if live != nil {
			return nil
		}
		return []byte("x")
	})
	p.write(shared, func(*store.Version) []byte { return []byte{'a' + byte(p.number)} })
	p.write(counter, add)
	p.write(token, func(live *store.Version) []byte {
		if live != nil {
			return nil
		}
		return []byte("x")
	})
}

// owners is another program: objects with a UID are made and removed; others are made on the condition that they are
// there; and two objects change together.
func (p *process) owners() {
	p.write(owner, func(live *store.Version) []byte {
		p.uids++
		return fmt.Appendf(nil, "%d.%d", p.number, p.uids)
	})
	p.pair()
	p.change([]store.Key{child}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		of, ok := p.other.store.Get(owner) // as of a client that has read it there
		if !ok {
			return nil, nil
		}
		return []store.Precondition{store.Fence(of)}, [][]byte{of.Data()}
	})
	p.write(owner, func(live *store.Version) []byte { return nil })
	p.write(owner, func(live *store.Version) []byte {
		if live != nil {
			return nil
		}
		p.uids++
		return fmt.Appendf(nil, "%d.%d", p.number, p.uids)
	})
	p.pair()
}

// pair adds to two counters in one transaction.
func (p *process) pair() {
	p.change([]store.Key{left, right}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		n := 0
		if live[0] != nil {
			n, _ = strconv.Atoi(string(live[0].Data()))
		}
		next := []byte(strconv.Itoa(n + 1))
		return nil, [][]byte{next, next}
	})
}

// write changes an object to what next makes of it, nil being no object.
func (p *process) write(k store.Key, next func(live *store.Version) []byte) {
	p.change([]store.Key{k}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		data := next(live[0])
		if data == nil && live[0] == nil {
			return nil, nil
		}
		return nil, [][]byte{data}
	})
}

// change changes objects to what decide makes of them, on the condition that they have not changed since they were
// read, and on the conditions that it adds; as often as it takes, unless one of these does not hold. decide returns no
// data if there is nothing to do.
func (p *process) change(keys []store.Key, decide func(live []*store.Version) ([]store.Precondition, [][]byte)) {
	for range 50 {
		live := make([]*store.Version, len(keys))
		for i, k := range keys {
			live[i], _ = p.store.Get(k)
		}
		pre, data := decide(live)
		if data == nil {
			return
		}
		changes := make([]store.Change, len(keys))
		for i, k := range keys {
			if pre = append(pre, store.Absent(k)); live[i] != nil {
				pre[len(pre)-1] = store.At(live[i])
			}
			changes[i] = store.Change{Key: k, Data: data[i], Sidecar: sidecarOf(k, data[i])}
		}
		began := p.revisionNow()
		given, err := p.store.Commit(context.Background(), pre, changes)
		var conflict *store.ConflictError
		switch {
		case err == nil:
			if p.acked = append(p.acked, given.First); p.store.Revision() < given.First {
				p.failed = append(p.failed, fmt.Errorf("it has made revision %d, and does not have it", given.First))
			}
		case errors.As(err, &conflict):
			i := slices.IndexFunc(pre, func(c store.Precondition) bool { return c.Key == conflict.Key })
			if i < 0 || !p.everBroken(&pre[i], began) {
				p.failed = append(p.failed, fmt.Errorf("%v, and it has held since revision %d", err, began))
			}
			if slices.Contains(keys, conflict.Key) {
				continue
			}
		case errors.Is(err, store.ErrUnknown):
			p.unknown++
		case isTransient(err): // it was not sent, as etcd could not be read; judge counts it among those not carried out
		default:
			p.failed = append(p.failed, err)
		}
		return
	}
	p.failed = append(p.failed, errors.New("it does not get on"))
}

// revisionNow is the revision of the model.
func (s *simulation) revisionNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// everBroken says whether a precondition did not hold at a revision of the model, or at one after it.
func (s *simulation) everBroken(c *store.Precondition, since int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for revision := since; revision <= s.revision; revision++ {
		var v *store.Version
		key := "/r/r/" + c.Key.Name
		if kvs := s.at(key, "", revision); len(kvs) == 1 {
			v = store.NewVersion(c.Key, kvs[0].ModRevision, kvs[0].Value, sidecarOf(c.Key, kvs[0].Value))
		}
		if c.Holds(v) != nil {
			return true
		}
	}
	return false
}

// run is one run. It returns what is wrong.
func (s *simulation) run() (wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	all := make([]*process, 2)
	choose, never := s.choose, func([]event) int { return 0 }
	s.choose = never // the start is not simulated
	if err := s.until(together(len(all), func(n int) {
		var err error
		if all[n], err = s.start(n); err != nil {
			s.t.Error(err)
		}
	})); err != nil || s.t.Failed() {
		s.t.Fatal("the processes do not start", err)
	}
	all[0].other, all[1].other = all[1], all[0]
	defer func() {
		for _, p := range all {
			p.store.Close()
		}
	}()
	s.choose, s.log = choose, nil
	began := s.revision
	if err := s.until(together(len(all), func(n int) { s.program(all[n]) })); err != nil {
		return []string{err.Error()}
	}
	// From now on nothing goes wrong, and what is late comes.
	s.choose = never
	if err := s.until(together(len(all), func(n int) {
		for s.late() {
			time.Sleep(time.Millisecond)
		}
		if _, err := all[n].store.Others.Fresh(context.Background(), store.Key{}, true); err != nil {
			all[n].failed = append(all[n].failed, err)
		}
	})); err != nil {
		return []string{err.Error()}
	}
	s.judge(all, began, fail)
	return wrong
}

// together calls a function for each number below n, and returns what is closed when all have returned.
func together(n int, do func(i int)) <-chan struct{} {
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// late says whether a request may still be carried out whose answer nobody waits for.
func (s *simulation) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pending, func(r *request) bool { return r.orphan })
}

// commits says whether a revision changes an object.
func (c change) commits() bool {
	return slices.ContainsFunc(c.events, func(e *mvccpb.Event) bool { return strings.HasPrefix(string(e.Kv.Key), "/r/") })
}

// judge compares what the processes were told with what the model has.
func (s *simulation) judge(all []*process, began int64, fail func(string, ...any)) {
	made := map[int64]int{} // by revision
	by := map[int]int{}
	for _, c := range s.history {
		if c.revision > began && c.by != nobody && c.commits() {
			made[c.revision] = c.by
			by[c.by]++
		}
	}
	for _, p := range all {
		for _, r := range p.acked {
			if maker, ok := made[r]; !ok || maker != p.number {
				fail("process %d was told that it has made revision %d, and has not", p.number, r)
			}
		}
		if slices.Sort(p.acked); len(slices.Compact(slices.Clone(p.acked))) != len(p.acked) {
			fail("process %d was told of one revision twice: %v", p.number, p.acked)
		}
		if n := by[p.number]; n < len(p.acked) || n > len(p.acked)+p.unknown {
			fail("process %d has made %d revisions, and was told of %d, and of %d that they are unknown", p.number, n,
				len(p.acked), p.unknown)
		}
		if len(p.failed) > 0 {
			fail("process %d: %v", p.number, p.failed)
		}
		s.judgeState(p, began, fail)
	}
	s.judgeHistory(fail)
}

// judgeHistory looks for what must not happen whoever does it: that two objects which change together differ, that an
// object is made without its owner, and that one with a UID is made twice.
func (s *simulation) judgeHistory(fail func(string, ...any)) {
	live, made := map[string]string{}, map[string]int64{}
	for _, c := range s.history {
		for _, e := range c.events {
			key := strings.TrimPrefix(string(e.Kv.Key), "/r/r/")
			if live[key] = string(e.Kv.Value); e.Type == mvccpb.Event_DELETE {
				delete(live, key)
			}
			switch {
			case e.Type != mvccpb.Event_PUT:
			case key == owner.Name:
				if before, ok := made[live[key]]; ok {
					fail("the owner %s is made at %d, and again at %d", live[key], before, c.revision)
				}
				made[live[key]] = c.revision
			case key == child.Name && live[owner.Name] != live[key]:
				fail("at %d a child of %s is made, and the owner is %q", c.revision, live[key], live[owner.Name])
			}
		}
		if live[left.Name] != live[right.Name] {
			fail("at %d one half is %q and the other %q", c.revision, live[left.Name], live[right.Name])
		}
	}
}

// judgeState compares the state of a process, and what a watch of it has got, with what the model has.
func (s *simulation) judgeState(p *process, began int64, fail func(string, ...any)) {
	var have, want []string
	for _, k := range simulated {
		if v, _ := p.store.Get(k); v != nil {
			have = append(have, fmt.Sprintf("%s=%s at %d", k.Name, v.Data(), v.Revision))
		}
		if kv := s.live["/r/r/"+k.Name]; kv != nil {
			want = append(want, fmt.Sprintf("%s=%s at %d", k.Name, kv.Value, kv.ModRevision))
		}
	}
	if !slices.Equal(have, want) {
		fail("process %d has %q, and etcd has %q", p.number, have, want)
	}
	var told []string
	for {
		records, err := p.cursor.Poll()
		if err != nil || len(records) == 0 {
			if errors.Is(err, store.ErrCompacted) {
				return // it begins again
			}
			break
		}
		for _, r := range records {
			text := fmt.Sprintf("%s at %d", r.Key.Name, r.Revision)
			if r.New != nil {
				text += fmt.Sprintf("=%s", r.New.Data())
			}
			told = append(told, text)
		}
	}
	var happened []string
	for _, c := range s.history {
		for _, e := range c.events {
			name, ok := strings.CutPrefix(string(e.Kv.Key), "/r/r/")
			if !ok || c.revision <= began {
				continue
			}
			text := fmt.Sprintf("%s at %d", name, c.revision)
			if e.Type == mvccpb.PUT {
				text += fmt.Sprintf("=%s", e.Kv.Value)
			}
			happened = append(happened, text)
		}
	}
	if !slices.Equal(told, happened) {
		fail("a watch of process %d was told %q, and %q has happened", p.number, told, happened)
	}
}

// setting is what all runs of a test have in common.
type setting struct {
	program    int
	restricted bool
}

// simulate makes one run.
func simulate(t *testing.T, of setting, choose func(possible []event) int) (wrong, log []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{t: t, model: newModel(), choose: choose, compactions: 1, expiries: 1, leaders: 1,
			restricted: of.restricted, program: programs[of.program]}
		wrong = s.run()
		log = s.log
	})
	return wrong, log
}

// deviation is a choice that is not the one that is made if nothing goes wrong.
type deviation struct{ step, choice int }

// deviate makes a run with some deviations, and returns how many events were possible at each step.
func deviate(t *testing.T, of setting, list []deviation) (possible []int, wrong, log []string) {
	wrong, log = simulate(t, of, func(all []event) int {
		step := len(possible)
		possible = append(possible, len(all))
		for _, d := range list {
			if d.step == step && d.choice < len(all) {
				return d.choice
			}
		}
		return 0
	})
	return possible, wrong, log
}

// explore makes all runs that deviate from a list of deviations, and by so many more after them. It returns their
// number.
func explore(t *testing.T, of setting, list []deviation, more int) (runs int) {
	possible, wrong, log := deviate(t, of, list)
	runs = 1
	if len(wrong) > 0 {
		t.Fatalf("%v: %s\n%s", list, strings.Join(wrong, "\n"), strings.Join(log, "\n"))
	}
	if more == 0 {
		return runs
	}
	from := 0
	if len(list) > 0 {
		from = list[len(list)-1].step + 1
	}
	for step := from; step < len(possible); step++ {
		for choice := 1; choice < possible[step]; choice++ {
			runs += explore(t, of, append(slices.Clone(list), deviation{step, choice}), more-1)
		}
	}
	return runs
}

// Whatever goes wrong between two servers and an etcd, and in whichever order: a commit that is acknowledged was made
// by its server, once; one that is refused was not and will not be; and in the end both servers have what etcd has.
//
// SPEC: STORE-1, STORE-2
func TestSimulation(t *testing.T) {
	for program := range programs {
		of := setting{program: program}
		began := time.Now()
		runs := explore(t, of, nil, *deviations)
		t.Logf("program %d: %d runs with up to %d deviations, %v", program, runs, *deviations, time.Since(began))
		random := rand.New(rand.NewPCG(*seed, uint64(program)))
		began = time.Now()
		for range *simulations {
			often := 2 + random.IntN(10)
			wrong, log := simulate(t, of, func(all []event) int {
				if random.IntN(often) == 0 {
					return random.IntN(len(all))
				}
				return 0
			})
			if len(wrong) > 0 {
				t.Fatalf("%s\n%s", strings.Join(wrong, "\n"), strings.Join(log, "\n"))
			}
		}
		t.Logf("program %d: %d random runs, %v", program, *simulations, time.Since(began))
	}
}

// Servers that may write nothing outside of their prefix tell the same, as long as no create comes late.
//
// SPEC: STORE-2
func TestSimulationOfRestrictedUsers(t *testing.T) {
	for program := range programs {
		if runs := explore(t, setting{program, true}, nil, 1); runs < 50 {
			t.Errorf("only %d runs", runs)
		}
	}
}
