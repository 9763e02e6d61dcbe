// Package storetest is the one test suite for stores over every log and with every writer: which data a store keeps and
// in which order, which commits it refuses, which cursors it wakes, and when it drops history. Random histories are
// compared with a model, a second implementation that is slow and obvious.
//
// A Cluster is a store in memory that several writers share. Each of its replicas is a store whose state lags behind
// the cluster, so the suite and other tests also cover states to which the commits of other processes are applied.
package storetest

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
)

// Implementation is a kind of store.
type Implementation struct {
	// New makes an empty directory, or its equivalent, and returns a function that opens a store in it. The function may
	// be called again after that store was closed.
	New func(testing.TB) (open func(store.Config) (*store.Store, error))
	// Durable says that a store has its content after it was closed and opened again.
	Durable bool
	// OneRevision says that all changes of a commit have the same revision.
	OneRevision bool
	// Shared says that it is a store of its own, with a clock of its own: a commit that changes nothing takes no revision,
	// and objects expire by that clock, within seconds, and not by Config.Now.
	Shared bool
	// Past says that it has a store.Past, which keeps everything from the first revision on.
	Past bool
}

// Over returns an Implementation.New for stores with the embedded writer over a log; log is like Implementation.New,
// for that log.
func Over(log func(testing.TB) (open func() (store.Log, error))) func(testing.TB) func(store.Config) (*store.Store,
	error) {
	return func(t testing.TB) func(store.Config) (*store.Store, error) {
		open := log(t)
		return func(c store.Config) (*store.Store, error) {
			var err error
			if c.Log, err = open(); err != nil {
				return nil, err
			}
			return store.Open(c)
		}
	}
}

// Run runs the suite.
func Run(t *testing.T, b Implementation) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Implementation)
	}{
		{"Empty", testEmpty},
		{"Commit", testCommit},
		{"CommitOfSeveralKeys", testCommitOfSeveralKeys},
		{"NameOrder", testNameOrder},
		{"Precondition", testPrecondition},
		{"PreconditionRace", testPreconditionRace},
		{"ParallelSums", testParallelSums},
		{"Live", testLive},
		{"Fence", testFence},
		{"FenceRace", testFenceRace},
		{"Identity", testIdentity},
		{"History", testHistory},
		{"HistoryInLog", testHistoryInLog},
		{"Past", testPast},
		{"SnapshotStays", testSnapshotStays},
		{"CollectionRevision", testCollectionRevision},
		{"WatchFuture", testWatchFuture},
		{"WatchWakes", testWatchWakes},
		{"WatchTerms", testWatchTerms},
		{"WatchManyWriters", testWatchManyWriters},
		{"WatchTermsManyWriters", testWatchTermsManyWriters},
		{"WatchQuiet", testWatchQuiet},
		{"WatchReady", testWatchReady},
		{"WatchSlow", testWatchSlow},
		{"WatchLeavesNothing", testWatchLeavesNothing},
		{"WatchReopen", testWatchReopen},
		{"WatchAll", testWatchAll},
		{"WatchAllWindow", testWatchAllWindow},
		{"WatchAllManyWriters", testWatchAllManyWriters},
		{"Dependents", testDependents},
		{"ExpiryDependents", testExpiryDependents},
		{"DependentsManyWriters", testDependentsManyWriters},
		{"WaitFor", testWaitFor},
		{"Window", testWindow},
		{"WindowCheckpoint", testWindowCheckpoint},
		{"Expiry", testExpiry},
		{"ExpiryReopen", testExpiryReopen},
		{"ExpiryOverwritten", testExpiryOverwritten},
		{"Planes", testPlanes},
		{"PlaneBounds", testPlaneBounds},
		{"PlaneExpiry", testPlaneExpiry},
		{"Across", testAcross},
		{"Close", testClose},
		{"Abandoned", testAbandoned},
		{"Late", testLate},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
}

// Describe is a sidecar computed from the bytes alone, so that one from the log can be told apart from one of a writer.
func Describe(k store.Key, data []byte) *store.Sidecar {
	h := fnv.New64a()
	h.Write(data)
	s := &store.Sidecar{UID: fmt.Sprintf("%x", h.Sum64()), Extra: len(data)}
	if n := len(data); n > 0 {
		s.Labels = []store.Pair{{Name: "first", Value: string(data[:1])}}
		s.Deleting = data[n-1]%2 == 0
	}
	s.Owners = ownersIn(data)
	return s
}

// words are the parts of the data of random objects. Each of them is the UID of an owner as well.
var words = []string{"alpha", "beta", "gamma", "delta"}

// ownersIn is the owners that Describe finds in data: the words, each as often as it occurs there.
func ownersIn(data []byte) (owners []string) {
	if len(data) > 100 {
		return nil // the data of a test about sizes
	}
	for _, field := range strings.Fields(string(data)) {
		if i := slices.Index(words, field); i >= 0 {
			owners = append(owners, words[i])
		}
	}
	return owners
}

// testStore is a store under test that can be closed and opened again. Its methods fail the test when the store
// returns an error.
type testStore struct {
	*store.Store
	t      testing.TB
	b      Implementation
	open   func(store.Config) (*store.Store, error)
	config store.Config
}

// newStore opens a new store. Config may change the configuration.
func newStore(t testing.TB, b Implementation, configure ...func(*store.Config)) *testStore {
	x := &testStore{t: t, b: b, open: b.New(t), config: store.Config{Describe: Describe}}
	for _, f := range configure {
		f(&x.config)
	}
	x.start()
	t.Cleanup(func() { x.Store.Close() })
	return x
}

// start opens the store.
func (x *testStore) start() {
	x.t.Helper()
	var err error
	if x.Store, err = x.open(x.config); err != nil {
		x.t.Fatal(err)
	}
}

// reopen closes the store and opens it again. If the implementation keeps nothing, it does neither and returns false.
func (x *testStore) reopen() bool {
	x.t.Helper()
	if !x.b.Durable {
		return false
	}
	if err := x.Store.Close(); err != nil {
		x.t.Fatal(err)
	}
	x.start()
	return true
}

// put writes one object without a precondition, and returns the revision.
func (x *testStore) put(k store.Key, data string) int64 {
	x.t.Helper()
	return x.commit(store.Change{Key: k, Data: []byte(data)})
}

func (x *testStore) commit(changes ...store.Change) int64 {
	x.t.Helper()
	revisions, err := x.Commit(context.Background(), nil, changes)
	if err != nil {
		x.t.Fatal(err)
	}
	return revisions.Of(len(changes) - 1)
}

func (x *testStore) watchAll(after int64) *store.Cursor {
	x.t.Helper()
	c, err := x.WatchAll(context.Background(), after)
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

func (x *testStore) watch(resource, prefix string, after int64) *store.Cursor {
	x.t.Helper()
	c, err := x.Watch(context.Background(), resource, prefix, after)
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// firstIs is the term of versions whose data begin with this word (Describe); the zero Term for "".
func firstIs(first string) store.Term {
	if first == "" {
		return store.Term{}
	}
	return store.Term{Label: true, Name: "first", Value: first}
}

func (x *testStore) watchTerm(prefix string, t store.Term) *store.Cursor {
	x.t.Helper()
	c, err := x.WatchTerm(context.Background(), "/pods", prefix, t, x.Revision())
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

func (x *testStore) snapshot(revision int64, resources ...string) *store.Snapshot {
	x.t.Helper()
	sn, err := x.Snapshot(revision, resources...)
	if err != nil {
		x.t.Fatalf("Snapshot(%d): %v", revision, err)
	}
	return sn
}

func pod(name string) store.Key { return store.Key{Resource: "/pods", Name: name} }

// line is a record as text: "7 +/pods/a=x", "8 ~/pods/a=x→y", "9 -/pods/a=y".
func line(r *store.Record) string {
	switch {
	case r.Old == nil:
		return fmt.Sprintf("%d +%s=%s", r.Revision, r.Key, r.New.Data())
	case r.New == nil:
		return fmt.Sprintf("%d -%s=%s", r.Revision, r.Key, r.Old.Data())
	}
	return fmt.Sprintf("%d ~%s=%s→%s", r.Revision, r.Key, r.Old.Data(), r.New.Data())
}

func lines(records []*store.Record) string {
	var b strings.Builder
	for _, r := range records {
		b.WriteString(line(r))
		b.WriteByte('\n')
	}
	return b.String()
}

// drain returns all records that a cursor has now, as text.
func drain(t testing.TB, c *store.Cursor) string {
	t.Helper()
	lines, err := tryDrain(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// tryDrain is drain of a history that may leave memory meanwhile.
func tryDrain(t testing.TB, c *store.Cursor) (string, error) {
	t.Helper()
	var b strings.Builder
	for {
		records, err := c.Poll()
		if len(records) == 0 || err != nil {
			return b.String(), err
		}
		for _, r := range records {
			checkRecord(t, r)
		}
		b.WriteString(lines(records))
	}
}

// checkRecord checks that the parts of a record fit together.
func checkRecord(t testing.TB, r *store.Record) {
	t.Helper()
	if r.New != nil && (r.New.Key != r.Key || r.New.Revision != r.Revision) {
		t.Fatalf("record %s of revision %d has the new version %s of %d", r.Key, r.Revision, r.New.Key, r.New.Revision)
	}
	if r.Old != nil && (r.Old.Key != r.Key || r.Old.Revision >= r.Revision) {
		t.Fatalf("record %s of revision %d has the old version %s of %d", r.Key, r.Revision, r.Old.Key, r.Old.Revision)
	}
	for _, v := range []*store.Version{r.New, r.Old} {
		if v != nil {
			checkSidecar(t, v)
		}
	}
}

func checkSidecar(t testing.TB, v *store.Version) {
	t.Helper()
	want, have := Describe(v.Key, v.Data()), v.Sidecar
	if have == nil || have.UID != want.UID || have.Extra != want.Extra || have.Deleting != want.Deleting ||
		!slices.Equal(have.Owners, want.Owners) {
		t.Fatalf("%s at %d has the sidecar %+v instead of %+v", v.Key, v.Revision, have, want)
	}
}

// next is Next with a short time limit.
func next(t testing.TB, c *store.Cursor) []*store.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	records, err := c.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return records
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this never became true: %s", what)
		}
	}
}

// clock is a time that moves only by advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
