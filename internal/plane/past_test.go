package plane

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/past"
)

var (
	histories   = flag.Int("histories", 200, "how many random histories TestPastHistories plays")
	historySeed = flag.Uint64("seed", 1, "the seed of the first one")
)

// pastCounts is what was done and compared, by name.
type pastCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *pastCounts) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[name] += n
}

// TestPastHistories plays random histories of objects of several types on a plane with a data directory in memory, and
// compares what the past says of them with a model. The plane is closed and opened in between, and power is cut; its
// log is compacted all the time, and packs are written, merged and removed.
//
// SPEC: BEY-4
func TestPastHistories(t *testing.T) {
	n := pastCounts{of: map[string]int{}}
	began := time.Now()
	types := pastTypes(t)
	var wait sync.WaitGroup
	workers := 4 * runtime.GOMAXPROCS(0) // a deletion of a definition waits, mostly
	for i := range workers {
		wait.Go(func() {
			for k := i; k < *histories && !t.Failed(); k += workers {
				playHistory(t, types, *historySeed+uint64(k), &n)
			}
		})
	}
	wait.Wait()
	t.Logf("%d histories in %s: %+v", *histories, time.Since(began).Round(time.Millisecond), n.of)
	if t.Failed() {
		return
	}
	for name, floor := range map[string]int{ // in 100 histories
		"writes": 1500, "noops": 200, "refused": 400, "dry": 350, "restarts": 90, "crashes": 40, "cuts": 8,
		"forms":     140,
		"redefined": 25, "off": 10, "merged": 30, "removed": 4,
		"gets": 130, "absent": 250, "lists": 1000, "items": 2000, "pages": 250, "gone": 100, "old": 700,
		"purges": 30, "purgedVersions": 40, "purgedGets": 15, "purgedLists": 30, "purgedChanges": 60,
		"records": 600, "changes": 1200, "recordPages": 200, "deleted": 120, "historyChanges": 60,
	} {
		if have := n.of[name]; have < floor**histories/100 && *histories >= 100 {
			t.Errorf("%s: %d in %d histories, which is too few", name, have, *histories)
		}
	}
}

// pastWorld is a plane with a data directory, and what was done to it.
type pastWorld struct {
	t     *testing.T
	n     *pastCounts
	seed  uint64
	rng   *rand.Rand
	types *sharedTypes
	fs    *vfs.MemFS
	clock *atomic.Int64
	plane *Plane
	log   *past.Log // nil: the past is off
	cut   cutter
	feed  *store.Cursor
	model pastModel

	options past.Options
	steps   []string // for a failure
}

// sharedTypes is what planes have in common.
type sharedTypes struct {
	config Config
	types  *builtin.Types
	image  *Image
}

// pastTypes makes it: an empty plane, whose image has no objects, so that nothing is kept up.
func pastTypes(t *testing.T) *sharedTypes {
	t.Helper()
	c := configOf(t)
	c.Begin = BeginNone
	c.Storage = func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error) {
		return storage.Open(ctx, storage.Config{HistoryBytes: 1 << 20, Registry: types, Define: define,
			Logger: c.Logger})
	}
	p, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	shared := &sharedTypes{config: c, types: p.Types, image: p.Image()}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return shared
}

// beginning is the clock at the beginning of a history.
var beginning = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func playHistory(t *testing.T, types *sharedTypes, seed uint64, n *pastCounts) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case pastFailure:
			t.Error(string(failed))
		default:
			panic(failed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 48))
	w := &pastWorld{t: t, n: n, seed: seed, rng: rng, types: types, fs: vfs.NewCrashableMem(), clock: new(atomic.Int64),
		model: pastModel{versions: map[pastKey][]pastVersion{}, times: map[int64]time.Time{},
			purged: map[pastKey]int64{}}}
	w.clock.Store(beginning.UnixNano())
	w.options = past.Options{Retention: []time.Duration{time.Hour, 1000 * time.Hour}[rng.IntN(2)], Bytes: 1 << 40}
	if rng.IntN(8) == 0 {
		w.options.Bytes = 30 << 10
	}
	w.open()
	for _, ns := range []string{"one", "two"} {
		w.must(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
	}
	w.define()
	for range 30 + rng.IntN(60) {
		w.step()
	}
	w.pack()
	w.finish()
	if err := w.plane.Close(); err != nil {
		w.fail("close: %v", err)
	}
}

// pastFailure is the panic that ends a history.
type pastFailure string

func (w *pastWorld) fail(format string, args ...any) {
	panic(pastFailure(fmt.Sprintf("seed %d: %s\n\nThe newest revision is %d, and packs are %v. It follows\n%s", w.seed,
		fmt.Sprintf(format, args...), w.model.newest,
		w.packs(), strings.Join(w.steps, "\n"))))
}

func (w *pastWorld) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *pastWorld) now() time.Time { return time.Unix(0, w.clock.Load()) }

// open opens the data directory, as after a start.
func (w *pastWorld) open() {
	c := w.types.config
	var err error
	if c.Authority, err = authz.New(authz.FromModes([]authz.Mode{authz.RBAC}, nil),
		authz.Options{Logger: c.Logger, Features: c.Features}); err != nil {
		w.fail("%v", err)
	}
	c.Types, c.Image, c.Begin = w.types.types, w.types.image, BeginNone
	c.Now = engine.Clock(w.now)
	c.Storage = func(_ context.Context, types *engine.Registry, _ engine.Define) (*storage.Storage, error) {
		files, err := filelog.Open("data", filelog.Options{FS: w.fs, SegmentBytes: 8 << 10})
		if err != nil {
			return nil, err
		}
		log := store.Log(files)
		if w.log = nil; w.options.Retention > 0 {
			o := w.options
			w.cut.fs = w.fs
			o.FS, o.Now, o.PackBytes = errorfs.Wrap(w.fs, &w.cut), w.now, 2<<10
			if w.log, err = past.Open("data/past", files, o); err != nil {
				return nil, errors.Join(err, files.Close())
			}
			log = w.log
		}
		// Little is in memory and in the log, so that all else is in the past.
		s, err := store.Open(store.Config{Describe: engine.Describe(types), Log: log, Now: w.now, Logger: c.Logger,
			HistoryBytes: 64 << 10, MemoryHistoryBytes: 6 << 10, CompactBytes: 12 << 10})
		if err != nil {
			return nil, errors.Join(err, log.Close())
		}
		return new(storage.Storage).Plane(s), nil
	}
	if w.plane, err = New(w.t.Context(), c); err != nil {
		w.fail("open: %v", err)
	}
	w.follow()
	w.plane.Run(nil)
}

// follow begins to read changes at the newest revision. The plane itself writes, too, what is not compared.
func (w *pastWorld) follow() {
	if w.feed != nil {
		w.feed.Close()
	}
	revision := w.plane.Store.Revision()
	var err error
	if w.feed, err = w.plane.Store.WatchAll(w.t.Context(), revision); err != nil {
		w.fail("watch: %v", err)
	}
	w.reached(revision)
}

// reached notes the times of the revisions up to one.
func (w *pastWorld) reached(revision int64) {
	if revision < w.model.newest {
		w.fail("there was the revision %d, and now the newest one is %d", w.model.newest, revision)
	}
	for w.model.newest < revision {
		w.model.newest++
		w.model.times[w.model.newest] = w.now()
	}
}

// cutter copies, at one of the next operations on packs, what a loss of power would leave.
type cutter struct {
	mu   sync.Mutex
	fs   *vfs.MemFS
	how  vfs.CrashCloneCfg
	left int // operations until then; 0: it does not
	copy *vfs.MemFS
}

func (c *cutter) MaybeError(op errorfs.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 && op.Kind.ReadOrWrite() != errorfs.OpIsRead {
		if c.left--; c.left == 0 {
			c.copy = c.fs.CrashClone(c.how)
		}
	}
	return nil
}

func (c *cutter) String() string { return "cutter" }

// arm has the operation copied that many are before.
func (c *cutter) arm(how vfs.CrashCloneCfg, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.how, c.left = how, left
}

// take returns the copy; nil: there were fewer operations.
func (c *cutter) take() *vfs.MemFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.copy
	c.copy, c.left = nil, 0
	return taken
}

// pastCall is a request.
type pastCall struct {
	method, path, contentType, body string
	user, impersonate               string
	auditID                         string
}

// send sends a request, and returns the code and the document of its answer.
func (w *pastWorld) send(c pastCall) (int, map[string]any) {
	r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
	r.Host = "127.0.0.1"
	r.Header = http.Header{"Content-Type": {c.contentType}, "Audit-Id": {c.auditID}, "User-Agent": {"oracle/1"}}
	if c.impersonate != "" {
		r.Header.Set("Impersonate-User", c.impersonate)
		r.Header.Set("Impersonate-Group", access.Masters)
	}
	r = r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: c.user,
		Groups: []string{access.Masters, access.Authenticated}}}))
	answer := httptest.NewRecorder()
	w.plane.Handler().ServeHTTP(answer, r)
	var document map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
		w.fail("%s %s: %d, %v: %s", c.method, c.path, answer.Code, err, answer.Body)
	}
	return answer.Code, document
}

// get is a GET of the administrator.
func (w *pastWorld) get(path string) (int, map[string]any) {
	return w.send(pastCall{method: http.MethodGet, path: path, user: "admin"})
}

// must sends a request that succeeds, and changes nothing that is compared.
func (w *pastWorld) must(method, path, body string) {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	c := pastCall{method: method, path: path, contentType: contentType, body: body, user: "admin"}
	if code, answer := w.send(c); code >= 300 {
		w.fail("%s %s: %d: %v", method, path, code, answer)
	}
	if records := w.read(); len(records) > 0 {
		w.fail("%s %s: %d objects were changed", method, path, len(records))
	}
}

// read returns the changes of objects that are compared since the last call, as watches have them.
func (w *pastWorld) read() (records []*store.Record) {
	for {
		some, err := w.feed.Poll()
		if err != nil {
			w.fail("watch: %v", err)
		}
		if len(some) == 0 {
			break
		}
		for _, r := range some {
			if slices.Contains(kindPaths[:], r.Key.Resource) {
				records = append(records, r)
			}
		}
	}
	w.reached(w.feed.Revision())
	return records
}

func keyOf(k store.Key) pastKey {
	namespace, name, _ := strings.Cut(k.Name, "/")
	return pastKey{slices.Index(kindPaths[:], k.Resource), namespace, name}
}

// path is the URL of an object; without a name, of a collection, and without a namespace, of those in all of them.
func (k pastKey) path(version string) string {
	path := [kinds]string{"/api/v1", "/apis/apps/v1", "/apis/example.com/" + version}[k.kind]
	if k.namespace != "" {
		path += "/namespaces/" + k.namespace
	}
	_, resource, _ := strings.Cut(kindPaths[k.kind], "/")
	path += "/" + resource
	if k.name != "" {
		path += "/" + k.name
	}
	return path
}

// version is one of those in which Widgets are served; of other kinds it is not used.
func (w *pastWorld) version() string {
	if w.model.form.v2 && w.rng.IntN(2) == 0 {
		return "v2"
	}
	return "v1"
}

// kind is one that is served.
func (w *pastWorld) kind() int {
	if w.model.defined {
		return w.rng.IntN(kinds)
	}
	return w.rng.IntN(widgets)
}

func (w *pastWorld) key() pastKey {
	return pastKey{w.kind(), []string{"one", "two"}[w.rng.IntN(2)], []string{"a", "b", "c"}[w.rng.IntN(3)]}
}

// revision is any one. How many there are is not the same each time, as the plane itself writes, too; what is random
// does not depend on it.
func (w *pastWorld) revision() int64 { return 1 + int64(w.rng.Float64()*float64(w.model.newest)) }

func (w *pastWorld) step() {
	w.advance(time.Duration(1+w.rng.IntN(2000)) * time.Millisecond)
	switch n := w.rng.IntN(100); {
	case n < 68:
		w.write()
	case n < 70 || n < 73 && !w.model.defined:
		w.undefineOrDefine()
	case n < 76:
		w.define()
	case n < 81:
		w.pack()
	case n < 85:
		w.advance([]time.Duration{10 * time.Minute, 10 * time.Minute, 30 * time.Minute, -time.Hour}[w.rng.IntN(4)])
	case n < 88:
		w.restart()
	case n < 90:
		w.purge()
	default:
		w.readOne(w.revision())
	}
}

// advance sets the clock, which may go back.
func (w *pastWorld) advance(by time.Duration) {
	if by > time.Minute || by < 0 {
		w.note("the clock goes by %s", by)
	}
	// What the plane itself writes by the clock before would be older at once than watches can continue from.
	w.feed.Close()
	for begun := time.Now(); w.plane.Busy(); time.Sleep(50 * time.Microsecond) {
		if time.Since(begun) > time.Minute {
			w.fail("the plane is busy")
		}
	}
	w.reached(w.plane.Store.Revision())
	w.clock.Add(int64(by))
	w.follow()
	w.expire()
}

// expire notes what the past may have removed by now.
func (w *pastWorld) expire() {
	w.model.expire(w.now().Add(-w.options.Retention))
	for kind, path := range kindPaths {
		if w.log == nil || w.options.Bytes < 1<<40 || slices.Contains(w.options.Without, path) {
			w.model.keptFrom[kind] = math.MaxInt64
		}
	}
}

func (w *pastWorld) pack() {
	if w.log == nil {
		return
	}
	w.note("pack")
	before := w.packs()
	if err := w.log.Pack(w.t.Context()); err != nil {
		w.fail("pack: %v", err)
	}
	after := w.packs()
	for _, b := range before {
		switch i := slices.IndexFunc(after, func(a span) bool { return a.since <= b.since && b.until <= a.until }); {
		case i < 0:
			w.n.add("removed", 1)
		case after[i] != b:
			w.n.add("merged", 1)
		}
	}
}

// purge purges an object. All watches from before end, so that of the test begins again, as in advance.
func (w *pastWorld) purge() {
	if w.log == nil && len(w.packs()) > 0 {
		return // package storage refuses it: nobody reads the packs
	}
	k := w.key()
	for range 4 { // rather one that has something to purge
		if other := w.key(); len(w.model.versions[other]) > len(w.model.versions[k]) {
			k = other
		}
	}
	w.note("purge %v", k)
	w.feed.Close()
	code, answer := w.send(pastCall{method: http.MethodPost, path: k.path(w.version()) + "?purge", user: "admin"})
	w.reached(w.plane.Store.Revision())
	w.follow()
	versions, _ := answer["versions"].(float64)
	switch _, kept := w.model.record(k, "v1", math.MaxInt64); {
	case code == http.StatusNotFound && w.model.live(k) == nil && (kept == 0 || w.log == nil):
		return
	case code != http.StatusOK:
		w.fail("a purge of %v: %d, %v", k, code, answer)
	}
	until, err := strconv.ParseInt(textAt(answer, "until"), 10, 64)
	if err != nil || until > w.model.newest || w.model.live(k) == nil != (answer["live"] == nil) {
		w.fail("a purge of %v: %v", k, answer)
	}
	w.model.purged[k] = until
	w.n.add("purges", 1)
	w.n.add("purgedVersions", int(versions))
	if all := w.model.versions[k]; len(all) > 0 {
		w.getAsOf(k, all[w.rng.IntN(len(all))].revision)
	}
}

// span is the name of a pack.
type span struct{ since, until int64 }

// packs are those on the disk.
func (w *pastWorld) packs() (all []span) {
	names, err := w.fs.List("data/past")
	if err != nil {
		return nil // the past was never on
	}
	for _, name := range names {
		var s span
		if _, err := fmt.Sscanf(name, "%d-%d.pack", &s.since, &s.until); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// restart closes and opens the data directory, or cuts the power, and changes what is kept, now and then.
func (w *pastWorld) restart() {
	w.n.add("restarts", 1)
	if w.rng.IntN(2) == 0 {
		w.n.add("crashes", 1)
		left := []int{0, 50, 100}[w.rng.IntN(3)]
		w.note("power is cut, and %d%% of what was not synced is left", left)
		how := vfs.CrashCloneCfg{UnsyncedDataPercent: left, RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 0))}
		if w.cut.arm(how, 1+w.rng.IntN([]int{6, 40}[w.rng.IntN(2)])); w.rng.IntN(4) > 0 {
			w.pack()
		}
		cut := w.cut.take()
		if cut == nil {
			cut = w.fs.CrashClone(how)
		} else {
			w.n.add("cuts", 1)
			w.note("while packs were written")
		}
		if err := w.plane.Close(); err != nil {
			w.fail("close: %v", err)
		}
		w.fs = cut
	} else if err := w.plane.Close(); err != nil {
		w.fail("close: %v", err)
	}
	was := w.options
	switch w.rng.IntN(8) {
	case 0:
		w.options.Retention = []time.Duration{0, 10 * time.Minute, time.Hour, 1000 * time.Hour}[w.rng.IntN(4)]
	case 1:
		w.options.Retention = 0
	case 2:
		w.options.Without = [][]string{nil, kindPaths[:1], kindPaths[2:]}[w.rng.IntN(3)]
	default:
		if w.options.Retention == 0 {
			w.options.Retention = time.Hour
		}
	}
	w.note("a start with %s, without %s", w.options.Retention, w.options.Without)
	w.open()
	if w.log == nil {
		w.n.add("off", 1)
	}
	// What was not kept until now is kept from now on.
	for kind, path := range kindPaths {
		if (was.Retention == 0 || slices.Contains(was.Without, path)) && w.options.Bytes == 1<<40 {
			w.model.keptFrom[kind] = w.model.newest
		}
	}
	w.expire()
}

// finish compares what there was at many revisions, and the records of all objects.
func (w *pastWorld) finish() {
	w.note("finish")
	for range 3 {
		w.readAll(w.revision())
	}
	// What is at the edges of packs.
	for i, packs := 0, w.packs(); i < 1 && len(packs) > 0; i++ {
		p := packs[int(w.rng.Float64()*float64(len(packs)))]
		for _, revision := range []int64{p.since - 1, p.since, p.since + 1, p.until} {
			if revision > 0 && revision <= w.model.newest {
				w.readAll(revision)
			}
		}
	}
	for kind, from := range w.model.keptFrom {
		if from < w.model.newest && (kind != widgets || w.model.defined) {
			w.list(kind, max(1, from), pastSelection{}, 0)
		}
	}
	for _, k := range w.model.keys() {
		if k.kind != widgets || w.model.defined {
			w.record(k, w.rng.IntN(4), 0)
		}
	}
}

// readAll compares the objects of all kinds as of a revision.
func (w *pastWorld) readAll(revision int64) {
	for kind := range kinds {
		if kind != widgets || w.model.defined {
			w.list(kind, revision, pastSelection{}, max(0, w.rng.IntN(8)-3))
		}
	}
	w.getAsOf(w.key(), revision)
}

// readOne reads something as of a revision.
func (w *pastWorld) readOne(revision int64) {
	switch w.rng.IntN(3) {
	case 0:
		w.getAsOf(w.key(), revision)
	case 1:
		k := w.key()
		s := pastSelection{}
		if w.rng.IntN(2) == 0 {
			s.namespace = k.namespace
		}
		switch w.rng.IntN(4) {
		case 0:
			s.name = k.name
		case 1:
			s.team = "x"
		}
		w.list(k.kind, revision, s, w.rng.IntN(4))
	default:
		before := int64(0)
		if w.rng.IntN(2) == 0 {
			before = revision
		}
		w.record(w.key(), 1+w.rng.IntN(4), before)
	}
}

// older counts reads that the history of watches does not answer.
func (w *pastWorld) older(revision int64) {
	if errors.Is(w.plane.Store.Reaches(revision), store.ErrCompacted) {
		w.n.add("old", 1)
	}
}

// isGone says whether an answer is that the past does not reach back, which is an error if it has to.
func (w *pastWorld) isGone(code int, answer map[string]any, kind int, revision int64, what string) bool {
	if code != http.StatusGone {
		return false
	}
	w.n.add("gone", 1)
	if revision >= w.model.keptFrom[kind] {
		w.fail("%s as of %d: %v; it is to be kept from %d", what, revision, answer["message"], w.model.keptFrom[kind])
	}
	return true
}

func (w *pastWorld) getAsOf(k pastKey, revision int64) {
	version := w.version()
	path := fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", k.path(version), revision)
	w.older(revision)
	code, answer := w.get(path)
	if purged := w.model.isPurged(k, revision); purged {
		if w.n.add("purgedGets", 1); code != http.StatusGone {
			w.fail("GET %s: %d, %v; it was purged", path, code, answer)
		}
		return
	}
	if w.isGone(code, answer, k.kind, revision, path) {
		return
	}
	want := w.model.shown(k.kind, version, w.model.asOf(k, revision))
	switch {
	case want == nil:
		if w.n.add("absent", 1); code != http.StatusNotFound {
			w.fail("GET %s: %d, %v; it was not there", path, code, answer)
		}
	default:
		if w.n.add("gets", 1); code != http.StatusOK || !reflect.DeepEqual(answer, want) {
			w.fail("GET %s: %d\n%v\nwant\n%v", path, code, jsonOf(answer), jsonOf(want))
		}
	}
}

// list compares a list, in pages if there is a limit.
func (w *pastWorld) list(kind int, revision int64, s pastSelection, limit int) {
	version := w.version()
	path := pastKey{kind: kind, namespace: s.namespace}.path(version)
	query := url.Values{"resourceVersionMatch": {"Exact"}, "resourceVersion": {strconv.FormatInt(revision, 10)}}
	if s.name != "" {
		query.Set("fieldSelector", "metadata.name="+s.name)
	}
	if s.team != "" {
		query.Set("labelSelector", "team="+s.team)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	w.older(revision)
	var have []any
	purged := w.model.listsPurged(kind, revision, s)
	for {
		code, answer := w.get(path + "?" + query.Encode())
		if purged && code == http.StatusGone {
			w.n.add("purgedLists", 1)
			return
		}
		if w.isGone(code, answer, kind, revision, path) {
			return
		}
		items, _ := answer["items"].([]any)
		if code != http.StatusOK || textAt(answer, "metadata", "resourceVersion") != strconv.FormatInt(revision, 10) ||
			limit > 0 && len(items) > limit {
			w.fail("GET %s as of %d, %v: %d, %v", path, revision, query, code, jsonOf(answer))
		}
		have = append(have, items...)
		next := textAt(answer, "metadata", "continue")
		if next == "" {
			break
		}
		if len(have) > len(w.model.keys()) {
			w.fail("GET %s as of %d, %v: there is no end:\n%s", path, revision, query, jsonOf(have))
		}
		w.n.add("pages", 1)
		query.Set("continue", next)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	if purged {
		w.fail("GET %s as of %d, %v: it has an object that was purged:\n%s", path, revision, query, jsonOf(have))
	}
	want := w.model.list(kind, version, revision, s)
	w.n.add("lists", 1)
	w.n.add("items", len(have))
	if len(have) != len(want) {
		w.fail("GET %s as of %d, %v: %d items, want %d:\n%s", path, revision, query, len(have), len(want), jsonOf(have))
	}
	for i := range have {
		if kind != widgets { // items of a list of built-in types say neither
			have[i].(map[string]any)["apiVersion"] = want[i].(map[string]any)["apiVersion"]
			have[i].(map[string]any)["kind"] = want[i].(map[string]any)["kind"]
		}
		if !reflect.DeepEqual(have[i], want[i]) {
			w.fail("GET %s as of %d, %v: the item %d is\n%s\nwant\n%s", path, revision, query, i, jsonOf(have[i]),
				jsonOf(want[i]))
		}
	}
}

// record compares the record of an object, in pages if there is a limit, before a revision if that is not 0.
func (w *pastWorld) record(k pastKey, limit int, before int64) {
	version := w.version()
	path := k.path(version) + "?history"
	if limit > 0 {
		path += fmt.Sprintf("&limit=%d", limit)
	}
	next, complete := "", false
	if before > 0 {
		next = strconv.FormatInt(before, 10)
	} else {
		before = math.MaxInt64
	}
	want, kept := w.model.record(k, version, before)
	if w.log == nil { // it has what the history of watches has, of which the log keeps as much as it likes
		kept = 0
	}
	var have []any
	for first := true; first || next != ""; first = false {
		code, answer := w.get(path + "&continue=" + next)
		switch asked, _ := strconv.ParseInt(next, 10, 64); {
		case code == http.StatusGone && asked > 0:
			if w.n.add("gone", 1); asked-1 >= w.model.keptFrom[k.kind] && asked > 1 {
				w.fail("%s before %s: %v; it is to be kept from %d", path, next, answer, w.model.keptFrom[k.kind])
			}
			return
		case code == http.StatusNotFound && kept == 0 && len(have) == 0:
			return
		case code != http.StatusOK:
			w.fail("%s before %q: %d, %v", path, next, code, answer)
		}
		changes, _ := answer["changes"].([]any)
		if limit > 0 && len(changes) > limit {
			w.fail("%s before %q: %d changes", path, next, len(changes))
		}
		if have = append(have, changes...); len(have) > len(want) {
			w.fail("%s before %d: %d changes, want %d:\n%s", path, before, len(have), len(want), jsonOf(have))
		}
		complete, _ = answer["complete"].(bool)
		if next = textAt(answer, "metadata", "continue"); next != "" {
			w.n.add("recordPages", 1)
		}
	}
	w.n.add("records", 1)
	if len(want) > 0 && want[0].(map[string]any)["change"] == "deleted" {
		w.n.add("deleted", 1)
	}
	w.n.add("changes", len(have))
	for _, c := range have {
		if c.(map[string]any)["purged"] != nil {
			w.n.add("purgedChanges", 1)
		}
	}
	if len(have) < kept {
		w.fail("%s before %d: %d changes, want %d to %d:\n%s", path, before, len(have), kept, len(want), jsonOf(have))
	}
	if w.log == nil {
		w.n.add("historyChanges", len(have))
	}
	for i := range have {
		if got := have[i].(map[string]any); w.log == nil && got["time"] == nil {
			want[i] = unattributed(want[i].(map[string]any)) // memory has neither the time nor who has made it
		}
		if !reflect.DeepEqual(have[i], want[i]) {
			w.fail("%s before %d: the change %d is\n%s\nwant\n%s", path, before, i, jsonOf(have[i]), jsonOf(want[i]))
		}
	}
	if last := len(have) - 1; complete != (last >= 0 && have[last].(map[string]any)["change"] == "created") {
		w.fail("%s before %d: complete: %t:\n%s", path, before, complete, jsonOf(have))
	}
}

// unattributed is a change without when it was made, and by whom.
func unattributed(change map[string]any) map[string]any {
	change = maps.Clone(change)
	for _, key := range []string{"time", "user", "impersonator", "manager", "verb", "subresource", "auditID"} {
		delete(change, key)
	}
	return change
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
