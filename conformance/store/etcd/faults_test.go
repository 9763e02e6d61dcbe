package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/storetest"
)

// line is the network between a store and etcd: it can be cut; it loses answers, delays them, and holds them back.
type line struct {
	listener net.Listener
	to       atomic.Pointer[string]
	cut      atomic.Bool
	// loses is how many of a thousand pieces of answers are lost, with their connection.
	loses atomic.Int64
	// delay is how long each piece of an answer takes, in ns.
	delay atomic.Int64

	// held is locked while answers are held back.
	held sync.RWMutex

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// newLine opens a line to an etcd. URL is its near end.
func newLine(t *testing.T, url string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, conns: map[net.Conn]bool{}}
	l.lead(url)
	t.Cleanup(func() { listener.Close(); l.drop() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(near)
		}
	}()
	return l
}

func (l *line) URL() string { return "http://" + l.listener.Addr().String() }

func (l *line) serve(near net.Conn) {
	defer near.Close()
	if l.cut.Load() {
		return
	}
	far, err := net.Dial("tcp", *l.to.Load())
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.conns, near)
		delete(l.conns, far)
		l.mu.Unlock()
	}()
	go func() { _, _ = io.Copy(far, near); far.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := far.Read(buffer)
		if err != nil || rand.Int63n(1000) < l.loses.Load() {
			return
		}
		time.Sleep(time.Duration(l.delay.Load()))
		l.held.RLock()
		l.held.RUnlock() //nolint:staticcheck // it only waits
		if _, err := near.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// lead has later connections lead to an etcd.
func (l *line) lead(url string) {
	to := strings.TrimPrefix(url, "http://")
	l.to.Store(&to)
}

// drop ends all connections.
func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Cut ends all connections, and refuses new ones until it is called with false.
func (l *line) Cut(cut bool) {
	l.cut.Store(cut)
	if cut {
		l.drop()
	}
}

// direct is a client of an etcd beside the store.
func direct(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// anonymous describes objects without a UID: two writers may make the same one. storetest.Describe makes the UID from
// the data, so that equal objects of two writers would have one UID, which no server does.
func anonymous(k store.Key, data []byte) *store.Sidecar {
	s := storetest.Describe(k, data)
	s.UID = ""
	return s
}

// openPlain opens a store on an etcd.
func openPlain(t *testing.T, url string, configure ...func(*etcd.Config)) *store.Store {
	t.Helper()
	s, err := connect(t, url, configure...).Open(t.Context(), store.Config{Describe: anonymous}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func pod(name string) store.Key { return store.Key{Resource: "/pods", Name: name} }

func putPlain(t *testing.T, s *store.Store, k store.Key, data string) int64 {
	t.Helper()
	given, err := s.Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte(data)}})
	if err != nil {
		t.Fatal(err)
	}
	return given.First
}

// same checks that a state has what etcd has.
func same(t *testing.T, s *store.Store, url string) {
	t.Helper()
	answer, err := direct(t, url).Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	want := map[store.Key]int64{}
	for _, kv := range answer.Kvs {
		k, _ := plain{}.Key(strings.TrimPrefix(string(kv.Key), "/registry/"))
		want[k] = kv.ModRevision
	}
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	snapshot, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	have := map[store.Key]int64{}
	snapshot.Scan(func(v *store.Version) bool { have[v.Key] = v.Revision; return true })
	if !maps.Equal(have, want) {
		t.Errorf("the state has %v, etcd %v", have, want)
	}
}

// Answers that are lost leave no write in doubt: of many increments of a few numbers, each that was reported counts
// once, and each that failed at most once.
//
// SPEC: STORE-1, STORE-2
func TestLostAnswers(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	s := openPlain(t, l.URL())
	l.loses.Store(60)
	increment(t, s, 60, func() {})
	l.loses.Store(0)
	same(t, s, p.URL)
}

// increment has writers add to a few numbers, each as often as rounds says, while something is done to etcd. Each
// increment that was reported counts once, and each that failed at most once.
func increment(t *testing.T, s *store.Store, rounds int, meanwhile func()) {
	t.Helper()
	const writers, numbers = 6, 3
	var wait sync.WaitGroup
	var done, doubtful atomic.Int64
	for n := range writers {
		wait.Go(func() {
			for i := range rounds {
				k := pod(fmt.Sprint("n", (n+i)%numbers))
				for {
					before, revision := 0, int64(0)
					if v, ok := s.Get(k); ok {
						before, _ = strconv.Atoi(string(v.Data()))
						revision = v.Revision
					}
					_, err := s.Commit(context.Background(), []store.Precondition{{Key: k, Revision: revision}},
						[]store.Change{{Key: k, Data: []byte(strconv.Itoa(before + 1))}})
					if err == nil {
						done.Add(1)
						break
					}
					if !errors.As(err, new(*store.ConflictError)) {
						doubtful.Add(1)
						break
					}
				}
			}
		})
	}
	meanwhile()
	wait.Wait()
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for n := range numbers {
		v, _ := s.Get(pod(fmt.Sprint("n", n)))
		if v == nil {
			t.Fatal("a number is gone")
		}
		value, _ := strconv.Atoi(string(v.Data()))
		sum += int64(value)
	}
	t.Logf("%d increments, %d doubtful ones", done.Load(), doubtful.Load())
	if sum < done.Load() || sum > done.Load()+doubtful.Load() || done.Load() < int64(writers*rounds*9/10) {
		t.Errorf("the sum is %d after %d reported increments and %d doubtful ones", sum, done.Load(), doubtful.Load())
	}
}

// An etcd that is away for some time holds up writes, and reads that have to be current. Nothing that was acknowledged
// is lost, a watch goes on without a gap, and other reads go on meanwhile.
//
// SPEC: STORE-1
func TestEtcdGone(t *testing.T) {
	dir := t.TempDir()
	p := startEtcd(t, reference.EtcdOptions{Dir: dir, Fsync: true})
	s := openPlain(t, p.URL)
	c, err := s.Watch(t.Context(), "/pods", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	putPlain(t, s, pod("before"), "x")
	if err := p.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Command.Wait()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Fresh(short, store.Key{}, true); err == nil {
		t.Error("a read is current although etcd is gone")
	}
	if v, ok := s.Get(pod("before")); !ok || string(v.Data()) != "x" {
		t.Error("the state is gone with etcd")
	}
	written := make(chan error, 1)
	go func() {
		_, err := s.Commit(context.Background(), []store.Precondition{store.Absent(pod("meanwhile"))},
			[]store.Change{{Key: pod("meanwhile"), Data: []byte("y")}})
		written <- err
	}()
	time.Sleep(time.Second)
	startEtcd(t, reference.EtcdOptions{Dir: dir, Fsync: true, URL: p.URL})
	if err := <-written; err != nil {
		t.Errorf("a write that waited for etcd: %v", err)
	}
	putPlain(t, s, pod("after"), "z")
	var names []string
	for len(names) < 3 {
		records, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			names = append(names, r.Key.Name)
		}
	}
	if got := strings.Join(names, " "); got != "before meanwhile after" {
		t.Errorf("the watch has seen %s", got)
	}
	same(t, s, p.URL)
}

// If etcd compacts changes that a server has not received, its watches end with ErrCompacted, and its state is brought
// up to what etcd has.
//
// SPEC: WATCH-3
func TestCompactedUnderAWatch(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	s := openPlain(t, l.URL())
	putPlain(t, s, pod("stays"), "1")
	putPlain(t, s, pod("changes"), "1")
	putPlain(t, s, pod("goes"), "1")
	quiet, err := s.Watch(t.Context(), "/nodes", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Watch(t.Context(), "/pods", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	l.Cut(true)
	beside := openPlain(t, p.URL)
	putPlain(t, beside, pod("changes"), "2")
	putPlain(t, beside, pod("new"), "1")
	if _, err := beside.Commit(t.Context(), nil, []store.Change{{Key: pod("goes")}}); err != nil {
		t.Fatal(err)
	}
	last := putPlain(t, beside, pod("changes"), "3")
	if _, err := direct(t, p.URL).Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	l.Cut(false)
	if err := s.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*store.Cursor{"pods": c, "nodes": quiet} {
		if _, err := c.Next(t.Context()); err != store.ErrCompacted {
			t.Errorf("the watch of %s: %v, should be ErrCompacted", name, err)
		}
	}
	same(t, s, p.URL)
	again, err := s.Watch(t.Context(), "/pods", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	putPlain(t, s, pod("later"), "1")
	if records, err := again.Next(t.Context()); err != nil || records[0].Key.Name != "later" {
		t.Errorf("a new watch: %v, %v", records, err)
	}
}

// An etcd that was restored from an older copy is refused, in words: nothing is written to it any more.
func TestOlderCopy(t *testing.T) {
	dir := t.TempDir()
	p := startEtcd(t, reference.EtcdOptions{Dir: dir, Fsync: true})
	first := openPlain(t, p.URL)
	putPlain(t, first, pod("a"), "1")
	stop := func() {
		t.Helper()
		_ = p.Command.Process.Signal(os.Interrupt)
		_ = p.Command.Wait()
	}
	copied := filepath.Join(t.TempDir(), "copy")
	stop()
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "etcd"))); err != nil {
		t.Fatal(err)
	}
	p = startEtcd(t, reference.EtcdOptions{Dir: dir, Fsync: true, URL: p.URL})
	for i := range 10 {
		putPlain(t, first, pod(fmt.Sprint("b", i)), "1")
	}
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	startEtcd(t, reference.EtcdOptions{Dir: dir, Fsync: true, URL: p.URL})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for first.Healthy() == nil && ctx.Err() == nil {
		_, _ = first.Fresh(ctx, store.Key{}, true)
	}
	if err := first.Healthy(); !errors.Is(err, store.ErrClosed) || !strings.Contains(err.Error(), "older snapshot") {
		t.Errorf("the store says %v", err)
	}
	_, err := first.Commit(ctx, nil, []store.Change{{Key: pod("c"), Data: []byte("x")}})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("a write: %v", err)
	}
}

// An etcd without space refuses writes, and goes on with reads; when it has space again, writes are taken.
func TestNoSpace(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{Flags: []string{"--quota-backend-bytes", "8388608"}})
	s := openPlain(t, p.URL)
	data := strings.Repeat("x", 500_000)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = s.Commit(t.Context(), nil, []store.Change{{Key: pod("a"), Data: []byte(data)}})
	}
	if !errors.Is(err, store.ErrNoRoom) {
		t.Fatalf("a write to an etcd without space: %v", err)
	}
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Errorf("a read: %v", err)
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("the store is not healthy any more: %v", err)
	}
	d := direct(t, p.URL)
	if _, err := d.Compact(t.Context(), s.Revision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Defragment(t.Context(), p.URL); err != nil {
		t.Fatal(err)
	}
	if _, err := d.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	putPlain(t, s, pod("a"), "small")
}

// Objects that expire are deleted by etcd, no sooner than asked for, and many share a lease.
//
// SPEC: URI-10
func TestExpiry(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	s := openPlain(t, p.URL)
	c, err := s.Watch(t.Context(), "/events", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	expiring := func(name string, at time.Time) {
		t.Helper()
		k := store.Key{Resource: "/events", Name: name}
		sidecar := anonymous(k, []byte("e"))
		sidecar.Expire = at
		if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte("e"), Sidecar: sidecar}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		expiring(fmt.Sprint("late", i), time.Now().Add(time.Hour))
	}
	// A lease is used for a minute, so that these share one, or two of a slow machine.
	leases, err := direct(t, p.URL).Leases(t.Context())
	if err != nil || len(leases.Leases) == 0 || len(leases.Leases) > 10 {
		t.Errorf("%d leases for 20 objects, %v", len(leases.Leases), err)
	}
	at := time.Now().Add(3 * time.Second)
	expiring("soon", at)
	for gone := false; !gone; {
		records, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.New != nil {
				continue
			}
			if gone = true; r.Key.Name != "soon" || time.Now().Before(at) {
				t.Errorf("%s was deleted %s before its time", r.Key, time.Until(at))
			}
		}
	}
}

// Of several servers that compact, one does it in each interval, by the key of the reference's protocol.
func TestCompactor(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	const interval, writes = 100 * time.Millisecond, 24
	often := func(c *etcd.Config) { c.CompactionInterval = interval }
	began := time.Now()
	s, other := openPlain(t, p.URL, often), openPlain(t, p.URL, often)
	d := direct(t, p.URL)
	written, compacted := int64(0), int64(0)
	eventually(t, "the key is written often enough", func() error {
		putPlain(t, s, pod("a"), "x")
		putPlain(t, other, pod("b"), "x")
		answer, err := d.Get(t.Context(), "compact_rev_key")
		if err != nil || len(answer.Kvs) == 0 {
			return fmt.Errorf("%v", err)
		}
		written = answer.Kvs[0].Version
		if compacted, err = strconv.ParseInt(string(answer.Kvs[0].Value), 10, 64); err == nil && written < writes {
			err = fmt.Errorf("%d writes", written)
		}
		return err
	})
	// If each of them wrote the key at each of its turns, there were two in an interval. A slow machine has fewer.
	if intervals := int64(time.Since(began)/interval) + 1; written > intervals*3/2 {
		t.Errorf("the key was written %d times in %d intervals", written, intervals)
	}
	if compacted <= 2 || compacted >= s.Revision() {
		t.Errorf("compacted up to %d of %d", compacted, s.Revision())
	}
	if _, err := d.Get(t.Context(), "/registry/|pods/a", clientv3.WithRev(2)); err == nil {
		t.Error("the history is whole")
	}
	same(t, s, p.URL)
}
