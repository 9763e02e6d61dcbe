package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// A comparison of builds of Plinth: how much does a change cost, or save, on a machine that is not quiet? All of them
// run at the same time and take short turns at the same work, in an order that changes with every turn, so that other
// load on the machine affects each of them. Compared are the ratios of the costs in each turn: their median, with the
// quartiles. The ratio of the sums over all turns contains what few turns pay for all, such as garbage collections, and
// the noise of the machine. Two copies of one build show the resolution of the method. The name "reference" stands for
// the reference, "now" for the work tree, and "base" for what it is compared with by default: the last tag, or where
// there is none, the commit of ten days ago, or of five in a younger repository.
//
// The name of a build may be followed by words, separated by blanks. A flag is the server's: one build with and without
// it shows its cost. With replicas=3 there are three servers on one etcd (-etcd), of which one after the other does the
// work of a turn, and is measured: what does it cost a server that there are others, and how long do writes take? "CPU
// of all" is the processor time of everything that takes part: the servers, until a moment after the turn, their etcd,
// and the clients. Where the time grows as it does, the processors are what is scarce. With watches=2, two more
// processes watch the etcd and ignore what it sends: other servers that follow it cannot cost less.
//
// Each build runs as a copy that is written for this run. How the pages of a program's file are in memory decides what
// its code costs: a file that the linker has written and a copy of it differed by 15 % to 25 % in all rows (Linux 6.18,
// ext4), copies of two builds by less than the noise.

// compared is one row: n units of work a turn, and the function that does them.
type compared struct {
	key  string
	n    int
	work func(b *bench, ctx context.Context, from, to int) error
}

var comparedRows = []compared{
	{"apply", 20, (*bench).apply},
	{"create", 20, (*bench).createAlone},
	{"create-32", 640, (*bench).create},
	{"get", 50, (*bench).getAlone},
	{"get-8", 100, (*bench).get},
	{"list", 20, (*bench).listAlone},
	{"patch-8", 400, (*bench).patchPods},
	{"patch-hot", 40, (*bench).patchHot},
	{"watch", 10, (*bench).watchTurn},
}

// programOf is the program that a name stands for.
func programOf(ctx context.Context, dir, name string) (string, error) {
	switch name {
	case "now":
		return harness.Program()
	case "base":
		revision, err := harness.LastRelease(ctx)
		if err != nil {
			return "", fmt.Errorf("-compare: %w: name two builds", err)
		}
		return harness.ProgramAt(ctx, dir, revision)
	}
	return name, nil
}

// controllers are all but those that put something into new namespaces. The harness leaves out more, but builds of some
// time ago do not know every name of its list.
const controllers = "--controllers=*,-serviceaccount-controller,-root-ca-certificate-publisher-controller"

// copied returns a copy of a program.
func copied(program, to string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(to, text, 0o755)
}

// compare measures each program against the first one; a single one against the base.
func compare(ctx context.Context, dir string, programs []string, turns int, wanted func(key string) bool) error {
	if len(programs) == 1 {
		programs = []string{"base", programs[0]}
	}
	var groups []*group // by program
	for i, program := range programs {
		words := strings.Fields(program)
		if len(words) == 0 {
			return fmt.Errorf("-compare: the name of a build is missing")
		}
		file, err := programOf(ctx, dir, words[0])
		if err != nil {
			return err
		}
		b := &bench{kind: harness.Plinth, more: []string{controllers}, patched: new(int),
			dir: filepath.Join(dir, fmt.Sprint(i)), results: map[string]result{}, tallies: map[string]*tally{}}
		replicas, watches := 1, 0
		for _, word := range words[1:] {
			_, noReplicas := fmt.Sscanf(word, "replicas=%d", &replicas)
			if _, noWatches := fmt.Sscanf(word, "watches=%d", &watches); noReplicas != nil && noWatches != nil {
				b.more = append(b.more, word)
			}
		}
		if words[0] == string(harness.Reference) {
			b.kind, b.more = harness.Reference, b.more[1:]
		} else if b.program, err = copied(file, filepath.Join(dir, fmt.Sprint("program-", i))); err != nil {
			return err
		}
		if err := b.start("main"); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		defer func() { b.server.Kill() }()
		if err := b.client.Namespace(ctx, namespace); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		if err := b.prepare(ctx); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		g := &group{servers: []*bench{b}}
		groups = append(groups, g)
		for n := 1; n < replicas; n++ {
			one, err := b.replica(ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			defer func() { one.server.Kill() }()
			g.servers = append(g.servers, one)
		}
		for range watches {
			if b.server.Etcd == "" {
				return errWithoutEtcd
			}
			follower, err := startFollower(b.server.Etcd)
			if err != nil {
				return fmt.Errorf("a bare watch: %w", err)
			}
			defer func() {
				follower.Process.Kill()
				follower.Wait()
			}()
			g.followers = append(g.followers, follower.Process.Pid)
		}
	}
	costs := map[string][][]cost{} // by row, program and turn
	const warm = 3                 // turns that do not count
	for turn := range turns + warm {
		for _, r := range comparedRows {
			if !wanted(r.key) {
				continue
			}
			if costs[r.key] == nil {
				costs[r.key] = make([][]cost, len(groups))
			}
			for i := range groups {
				i = (i + turn) % len(groups)
				if turn%2 == 1 {
					i = len(groups) - 1 - i
				}
				c, err := groups[i].turn(ctx, r, turn)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", programs[i], r.key, err)
				}
				if turn >= warm {
					costs[r.key][i] = append(costs[r.key][i], c)
				}
			}
		}
	}
	return printComparison(programs, turns, costs)
}

// group is the servers of a build that have one etcd, and the processes with bare watches of it.
type group struct {
	servers   []*bench
	followers []int
}

// catchUp is how long the others get at the end of a turn until they have all changes. They follow within milliseconds,
// and to ask them would cost as much as a few changes.
const catchUp = 20 * time.Millisecond

// turn has one of the servers do the work of a turn.
func (g *group) turn(ctx context.Context, r compared, turn int) (cost, error) {
	b := g.servers[turn%len(g.servers)]
	clear(b.tallies)
	before, err := g.spent()
	if err != nil {
		return cost{}, err
	}
	from := b.pods + turn*r.n // after the existing Pods
	if err := r.work(b, ctx, from, from+r.n); err != nil {
		return cost{}, err
	}
	time.Sleep(catchUp)
	after, err := g.spent()
	for _, t := range b.tallies { // there is only one, that of this row
		return cost{t.amount / t.by, t.took.Seconds() * 1000 / t.by, (after - before).Seconds() * 1000 / t.by}, err
	}
	return cost{}, errors.New("the row has measured nothing")
}

// spent is the processor time that all that takes part has used: the servers, etcd, those who watch it, and the clients
// in this process.
func (g *group) spent() (total time.Duration, err error) {
	pids := append([]int{os.Getpid()}, g.followers...)
	for _, b := range g.servers {
		pids = append(pids, b.server.Pids()...)
	}
	for _, pid := range pids {
		used, err := load.CPUOf(pid)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// cost is what a unit has cost the server, how long it took, and what it has cost all that takes part, in milliseconds.
type cost struct{ cpu, took, all float64 }

func cpuOf(c cost) float64  { return c.cpu }
func timeOf(c cost) float64 { return c.took }
func allOf(c cost) float64  { return c.all }

// each are the values of turns, or their ratios to those of others.
func each(costs, to []cost, of func(cost) float64) (values []float64) {
	for i, c := range costs {
		value := of(c)
		if to != nil {
			value /= of(to[i])
		}
		values = append(values, value)
	}
	return values
}

func printComparison(programs []string, turns int, costs map[string][][]cost) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%d turns\tserver CPU, median\tratio, median\tquartiles\tof the sums\ttime, median\tratio, median\t"+
		"CPU of all, median\tratio, median\t\n", turns)
	for _, r := range comparedRows {
		for i, all := range costs[r.key] {
			first := costs[r.key][0]
			cpu, ratios := each(all, nil, cpuOf), each(all, first, cpuOf)
			fmt.Fprintf(out, "%s: %s\t%.1f µs\t%.3f\t%.3f – %.3f\t%.3f\t%.1f µs\t%.3f\t%.1f µs\t%.3f\t\n", r.key, shown(programs[i]),
				1000*load.Quantile(cpu, 0.5), load.Quantile(ratios, 0.5), load.Quantile(ratios, 0.25),
				load.Quantile(ratios, 0.75), sum(cpu)/sum(each(first, nil, cpuOf)),
				1000*load.Quantile(each(all, nil, timeOf), 0.5), load.Quantile(each(all, first, timeOf), 0.5),
				1000*load.Quantile(each(all, nil, allOf), 0.5), load.Quantile(each(all, first, allOf), 0.5))
		}
	}
	return out.Flush()
}

// shown formats a program with its flags, without the values of the server's.
func shown(program string) string {
	words := strings.Fields(program)
	words[0] = filepath.Base(words[0])
	for i, word := range words {
		if strings.HasPrefix(word, "--") {
			words[i], _, _ = strings.Cut(word, "=")
		}
	}
	return strings.Join(words, " ")
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// hot is the collection of the object that patch-hot patches; no watches are on it.
const hot = "/api/v1/namespaces/default/configmaps"

// prepare creates the objects of the rows: Pods to get, and watchers of a few ConfigMaps.
func (b *bench) prepare(ctx context.Context) error {
	b.pods = 100
	err := load.Each(8, b.pods, func(i int) error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: podsPath,
			Body: load.Pod(namespace, podName(i), 0)})
		return err
	})
	if err != nil {
		return err
	}
	_, err = b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: hot,
		Body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hot"},"data":{"k":"v"}}`)})
	if err != nil {
		return err
	}
	if _, err = b.watched(ctx, 10); err != nil {
		return err
	}
	return b.openWatches(ctx)
}

// replica starts another server on the etcd of the first one.
func (b *bench) replica(ctx context.Context, n int) (*bench, error) {
	one := *b
	one.etcd, one.dir = b.server.Etcd, filepath.Join(b.dir, fmt.Sprint("replica-", n))
	one.more = append(slices.Clone(b.more), fmt.Sprintf("--advertise-address=10.77.0.%d", n+1))
	one.results, one.tallies = map[string]result{}, map[string]*tally{}
	if one.etcd == "" {
		return nil, errWithoutEtcd
	}
	if err := one.start("main"); err != nil {
		return nil, err
	}
	return &one, one.openWatches(ctx)
}

var errWithoutEtcd = errors.New("several servers and bare watches need an etcd: -etcd")

// openWatches opens the watches of the server.
func (b *bench) openWatches(ctx context.Context) error {
	const path = "/api/v1/namespaces/" + namespace + "/configmaps"
	list, err := b.client.Do(ctx, load.Request{Method: http.MethodGet, Path: path + "?fieldSelector=metadata.name%3Dnone"})
	if err != nil {
		return err
	}
	readers := load.New(b.server, max(4, *comparedWatchers/100))
	b.events = new(atomic.Int64)
	for range *comparedWatchers {
		w := &watcher{client: readers, path: path, version: load.ResourceVersion(list),
			events: b.events, size: new(atomic.Int64)}
		if err := w.open(ctx); err != nil {
			return err
		}
		go w.read(ctx)
	}
	return nil
}

var comparedWatchers = flag.Int("watchers", 50, "in a comparison, how many watches each server has")

// watchTurn changes objects one after the other, each as soon as all watchers have seen the one before. A unit is a
// delivered event.
func (b *bench) watchTurn(ctx context.Context, from, to int) error {
	return b.spend("watch", (to-from)**comparedWatchers, func() error {
		for i := from; i < to; i++ {
			*b.patched++
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
				Path: fmt.Sprintf("/api/v1/namespaces/%s/configmaps/watched-%d", namespace, i%10),
				Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, *b.patched)})
			if err != nil {
				return err
			}
			began := time.Now()
			for due := int64(*b.patched * *comparedWatchers); b.events.Load() < due; {
				if time.Since(began) > time.Minute {
					return fmt.Errorf("of %d events %d have come", due, b.events.Load())
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		return nil
	})
}

func (b *bench) createAlone(ctx context.Context, from, to int) error {
	return b.spend("create", to-from, func() error {
		for i := from; i < to; i++ {
			_, err := b.one.Discard(ctx, load.Request{Method: http.MethodPost, Path: podsPath,
				Body: load.Pod(namespace, fmt.Sprint("lone-", i), 0)})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// listAlone reads a hundred Pods, one list after the other.
func (b *bench) listAlone(ctx context.Context, from, to int) error {
	return b.spend("list", to-from, func() error {
		for range to - from {
			_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: podsPath + "?limit=100"})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) getAlone(ctx context.Context, from, to int) error {
	return b.spend("get", to-from, func() error {
		for i := from; i < to; i++ {
			if _,
				err := b.one.Discard(ctx, load.Request{Method: http.MethodGet,
				Path: podsPath + "/" + podName(i%b.pods)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// patchPods has eight clients patch Pods, each another one.
func (b *bench) patchPods(ctx context.Context, from, to int) error {
	return b.spend("patch-8", to-from, func() error {
		return load.Each(8, to-from, func(i int) error {
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
				Path: podsPath + "/" + podName((from+i)%b.pods),
				Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, from+i)})
			return err
		})
	})
}

// patchHot has eight clients patch one object.
func (b *bench) patchHot(ctx context.Context, from, to int) error {
	return b.spend("patch-hot", to-from, func() error {
		return load.Each(8, to-from, func(i int) error {
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
				Path: hot + "/hot", Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, from+i)})
			return err
		})
	})
}
