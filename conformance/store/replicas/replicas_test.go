package replicas

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

var (
	lasts    = flag.Duration("duration", 20*time.Second, "how long clients write, and faults happen")
	withSeed = flag.Int64("seed", 1, "decides which faults happen when")
	only     = flag.String("faults", "", "names of the faults, with commas; none: all")
	whose    = flag.String("workloads", "", "names of the workloads, with commas; none: all")
)

func TestMain(m *testing.M) { harness.Main(m) }

// run is one run of clients and faults.
type run struct {
	*cluster
	t         *testing.T
	ctx       context.Context
	began     time.Time
	artifacts string
	truth     *truth // nil without an etcd
	workloads []*workload
	watchers  []*watcher
	wait      sync.WaitGroup // for faults
	newest    atomic.Int64   // the highest revision that any client has seen
	stopped   atomic.Int64   // members that have ended as their disk was full
	finals    map[string][]reading

	union map[string][]change // the truth of what is watched, when everything has ended
}

// saw notes a revision that a client has seen.
func (r *run) saw(revision int64) {
	for {
		newest := r.newest.Load()
		if revision <= newest || r.newest.CompareAndSwap(newest, revision) {
			return
		}
	}
}

// now is the time of the test, in ns.
func (r *run) now() int64 { return int64(time.Since(r.began)) }

// logf prints a line with the time.
func (r *run) logf(format string, arguments ...any) {
	r.t.Logf("%8.3fs %s", time.Duration(r.now()).Seconds(), fmt.Sprintf(format, arguments...))
}

func (r *run) figure(format string, arguments ...any) { r.t.Logf(format, arguments...) }

// generation numbers the objects that are used now: histories stay short, as clients turn to others again and again.
func (r *run) generation() int64 { return r.now() / int64(10*time.Second) }

// insist tries something until it succeeds, for two minutes.
func (r *run) insist(f func() error) {
	var err error
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	r.t.Error(err)
}

// insist is the same for requests.
func (c *client) insist(f func() bool) error {
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if f() {
			return nil
		}
	}
	return errors.New("there is no answer")
}

// changes are all changes of the ConfigMaps of a namespace that is watched. Everything has ended.
func (r *run) changes(namespace string) []change { return r.union[namespace] }

// all are the workloads.
func all() []*workload {
	return []*workload{registers(), counters(), names(), applies(), quotas(), addresses(), finalizers(), lists(),
		revisions()}
}

const clients = 12

// SPEC: STORE-2
func TestReplicas(t *testing.T) {
	c := &cluster{}
	c.startMembers(t)
	c.startReplicas(t, harness.Plinth, harness.Plinth, harness.Plinth)
	play(t, c)
}

// The same with a kube-apiserver among the replicas.
//
// SPEC: STORE-2, STORE-3
func TestReplicasBesideReference(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	c := &cluster{}
	c.startMembers(t)
	c.startReplicas(t, harness.Plinth, harness.Plinth, harness.Reference)
	play(t, c)
}

// One server with the embedded store, which is killed and frozen, answers as if nothing had happened to it.
//
// SPEC: STORE-1
func TestEmbedded(t *testing.T) {
	c := &cluster{}
	c.startReplicas(t, harness.Plinth)
	play(t, c)
}

// play has clients and faults do their work, and checks what they have seen.
func play(t *testing.T, c *cluster) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &run{cluster: c, t: t, ctx: ctx, began: time.Now(), artifacts: artifacts(t), union: map[string][]change{},
		finals: map[string][]reading{}}
	some, err := wanted(*only, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all() {
		if *whose == "" || strings.Contains(","+*whose+",", ","+w.name+",") {
			r.workloads = append(r.workloads, w)
		}
	}
	if len(c.members) > 0 {
		r.truth = followEtcd(ctx, c.etcd)
	}
	last := r.client(clients)
	for _, w := range r.workloads {
		if err := last.prepare(w); err != nil {
			t.Fatalf("preparing %s: %v", w.name, err)
		}
	}
	r.began = time.Now()
	for _, w := range r.workloads {
		w.last = 0
	}
	planned := plan(*withSeed, some, *lasts, len(c.replicas))
	t.Logf("seed %d, %s, %d faults: %s", *withSeed, *lasts, len(planned), byName(planned))
	var watching, working sync.WaitGroup
	ending, end := context.WithCancel(ctx)
	for i, namespace := range watchedNamespaces {
		for j := range 3 {
			w := &watcher{run: r, namespace: namespace, steady: j == 0, selects: j == 2,
				rand: rand.New(rand.NewSource(*withSeed + int64(100+3*i+j)))}
			r.watchers = append(r.watchers, w)
			watching.Go(func() { w.follow(ending, func() int64 { return 0 }) })
		}
	}
	// What watches have seen is the truth of a server without an etcd, so they are first.
	for _, w := range r.watchers {
		w.begun(t)
	}
	for i := range clients {
		working.Go(func() { r.client(i).work(ending) })
	}
	r.cause(planned)
	r.finishWork()
	end()
	working.Wait()
	watching.Wait()
	r.heal()
	r.oneLeads()
	r.readEverything(last)
	r.check()
}

// client is one with a number.
func (r *run) client(id int) *client {
	return &client{run: r, id: id, rand: rand.New(rand.NewSource(*withSeed<<8 + int64(id)))}
}

// prepare makes the namespace of a workload, and what else it needs.
func (c *client) prepare(w *workload) error {
	err := c.insist(func() bool {
		a := c.send(http.MethodPost, "/api/v1/namespaces", plainJSON, object{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": w.name}})
		return a.outcome == done || a.status == http.StatusConflict
	})
	if err == nil && w.prepare != nil {
		err = w.prepare(c)
	}
	return err
}

// work sends requests until the context ends. The last one is not cut off.
func (c *client) work(ending context.Context) {
	for ending.Err() == nil {
		w := c.workloads[c.rand.Intn(len(c.workloads))]
		w.step(c, w)
		pause(ending, time.Duration(c.rand.Intn(25))*time.Millisecond)
	}
}

// finishWork waits until the time is over and there is enough to check, which takes longer on a slow machine. That what
// is too little is an error, check finds.
func (r *run) finishWork() {
	pause(r.ctx, *lasts-time.Duration(r.now()))
	enough := func() bool {
		for _, w := range r.workloads {
			if w.done() < floor {
				return false
			}
		}
		return true
	}
	for until := time.Now().Add(2 * time.Minute); !enough() && time.Now().Before(until); {
		pause(r.ctx, 100*time.Millisecond)
	}
}

// heal waits until all replicas are ready.
func (r *run) heal() {
	for i := range r.replicas {
		r.insist(func() error {
			ctx, cancel := context.WithTimeout(r.ctx, patience)
			defer cancel()
			response, err := r.open(ctx, i, http.MethodGet, "/readyz", "", nil)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("replica %d answers %s", i, response.Status)
			}
			return nil
		})
	}
	r.logf("all faults are healed, and all replicas ready")
}

// oneLeads waits until the controllers run in one of the Plinths, by what they say themselves, and nowhere else.
func (r *run) oneLeads() {
	const leads, follows = "\nleader_election_master_status{name=\"plinth-controllers\"} 1\n",
		"\nleader_election_master_status{name=\"plinth-controllers\"} 0\n"
	r.insist(func() error {
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		leaders := 0
		for i, one := range r.replicas {
			if one.Kind != harness.Plinth || r.truth == nil {
				continue // it runs none, or has nobody to share them with
			}
			response, err := r.open(ctx, i, http.MethodGet, "/metrics", "", nil)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			switch {
			case err != nil:
				return err
			case strings.Contains(string(text), leads):
				leaders++
			case !strings.Contains(string(text), follows):
				return fmt.Errorf("replica %d does not say whether it leads", i)
			}
		}
		if r.truth != nil && leaders != 1 {
			return fmt.Errorf("%d replicas run the controllers", leaders)
		}
		return nil
	})
}

// readEverything reads all objects once more, and has watches and the truth come to an end that all have seen.
func (r *run) readEverything(c *client) {
	for _, w := range r.workloads {
		var err error
		switch w.name {
		case "lists":
			err = w.listAll(c)
		case "finalizers":
			err = w.readAll(c, heldState)
		case "applies":
			err = w.readAll(c, ownedState)
		default:
			err = w.readAll(c, dataOf)
		}
		if err != nil {
			r.t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	var newest int64
	for _, namespace := range watchedNamespaces {
		end := int64(0)
		err := c.insist(func() bool {
			name := "last" + strings.ReplaceAll(strings.Trim(c.mark(), "<>"), ".", "-")
			a := c.send(http.MethodPost, configMaps(namespace), plainJSON, labelled(configMap(name, nil)))
			end = a.body.revision()
			// Without the workload there is no namespace.
			return a.outcome == done || a.status == http.StatusNotFound
		})
		if err != nil {
			r.t.Errorf("the last write to %s: %v", namespace, err)
			continue
		}
		newest = max(newest, end)
		for _, w := range r.watchers {
			if w.namespace == namespace && end > 0 {
				wait.Go(func() {
					if w.follow(ctx, func() int64 { return end }); w.position() < end {
						r.t.Errorf("a watch of %s has come to %d, the last change is %d", namespace, w.position(), end)
					}
				})
			}
		}
	}
	wait.Wait()
	r.listFinally(c)
	if r.truth != nil {
		r.insist(func() error {
			if upTo := r.truth.upToEnd(newest); upTo < newest {
				return fmt.Errorf("the test has read etcd up to %d of %d", upTo, newest)
			}
			return nil
		})
	}
}

// listFinally lists all namespaces at each replica.
func (r *run) listFinally(c *client) {
	for _, namespace := range watchedNamespaces {
		for i := range r.replicas {
			err := c.insist(func() bool {
				known := r.newest.Load()
				a := c.sendTo(i, http.MethodGet, configMaps(namespace), "", nil)
				if a.outcome != done {
					return false
				}
				one := reading{match: "the end", asked: known, revision: a.body.revision(), replica: i}
				for _, item := range a.body.items() {
					one.items = append(one.items, changeOf("", item))
				}
				r.finals[namespace] = append(r.finals[namespace], one)
				return true
			})
			if err != nil {
				r.t.Errorf("the last list of %s at replica %d: %v", namespace, i, err)
			}
		}
	}
}

// check looks for violations, and prints figures.
func (r *run) check() {
	var found []string
	if r.truth != nil && r.truth.failed != nil {
		r.t.Error(r.truth.failed)
	}
	if r.truth == nil {
		found = append(found, r.agree()...)
	} else {
		for _, namespace := range watchedNamespaces {
			r.union[namespace] = r.truth.of(namespace)
		}
	}
	for _, w := range r.workloads {
		r.t.Log(w)
		if w.done() < floor {
			r.t.Errorf("%s: %d requests were done, at least %d should be", w.name, w.done(), floor)
		}
		found = append(found, w.violations(r)...)
	}
	events, selected, moves, marks, expired := 0, 0, 0, 0, 0
	for _, w := range r.watchers {
		expired += w.expired
		for _, s := range w.segments {
			events, moves, marks = events+len(s.events), moves+s.moves, marks+len(s.marks)
			if s.selects {
				selected += len(s.events)
			}
			found = append(found, checkSegment(s, r.changes(s.namespace))...)
		}
	}
	if stopped := r.stopped.Load(); stopped > 0 {
		r.t.Logf("%d members have ended as their disk was full", stopped)
	}
	r.t.Logf("watches have had %d events, %d of them by a selector, and %d bookmarks, moved %d times, and were told to "+
		"list again %d times", events, selected, marks, moves, expired)
	if *whose == "" && (events-selected < floor || selected < floor/2 || moves < 10 || marks < 1) {
		r.t.Error("that is too little to say anything")
	}
	for namespace, lists := range r.finals {
		found = append(found, checkReadings(lists, r.changes(namespace))...)
	}
	for _, v := range found {
		r.t.Error(v)
	}
	if len(found) > 0 {
		for i, one := range r.replicas {
			if text, err := os.ReadFile(one.LogFile()); err == nil {
				_ = os.WriteFile(filepath.Join(r.artifacts, fmt.Sprintf("replica-%d.log", i)), text, 0o644)
			}
		}
		if r.truth != nil {
			if err := r.truth.export(filepath.Join(r.artifacts, "services.txt")); err != nil {
				r.t.Error(err)
			}
		}
		r.t.Logf("%d violations; histories are in %s", len(found), r.artifacts)
	}
}

// agree makes the truth of a server without an etcd of what its watches have seen.
func (r *run) agree() (violations []string) {
	for _, namespace := range watchedNamespaces {
		var seen [][]change
		for _, w := range r.watchers {
			if w.namespace == namespace && w.steady && len(w.segments) > 1 {
				violations = append(violations, fmt.Sprintf("a watch of %s had to list again, and nothing was compacted",
					namespace))
			}
			for _, s := range w.segments {
				if w.namespace == namespace && !w.selects {
					seen = append(seen, s.events)
				}
			}
		}
		changes, bad := agreed(seen...)
		r.union[namespace] = changes
		violations = append(violations, bad...)
	}
	return violations
}
