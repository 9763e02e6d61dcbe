package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
// the noise of the machine. Two copies of one build show the resolution of the method. The name of a build may be
// followed by flags, separated by blanks: one build with and without a flag shows its cost. The name "reference" stands
// for the reference, "now" for the work tree, and "base" for what it is compared with by default: the last tag, or
// where there is none, the commit of ten days ago, or of five in a younger repository.
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
	{"patch-8", 100, (*bench).patchPods},
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
	var benches []*bench
	for i, program := range programs {
		words := strings.Fields(program)
		if len(words) == 0 {
			return fmt.Errorf("-compare: the name of a build is missing")
		}
		file, err := programOf(ctx, dir, words[0])
		if err != nil {
			return err
		}
		b := &bench{kind: harness.Plinth, more: append([]string{controllers}, words[1:]...),
			dir: filepath.Join(dir, fmt.Sprint(i)), results: map[string]result{}, tallies: map[string]*tally{}}
		if program == string(harness.Reference) {
			b.kind, b.more = harness.Reference, nil
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
		benches = append(benches, b)
	}
	costs := map[string][][]float64{} // by row, program and turn, in milliseconds a unit
	const warm = 3                    // turns that do not count
	for turn := range turns + warm {
		for _, r := range comparedRows {
			if !wanted(r.key) {
				continue
			}
			if costs[r.key] == nil {
				costs[r.key] = make([][]float64, len(benches))
			}
			for i := range benches {
				i = (i + turn) % len(benches)
				if turn%2 == 1 {
					i = len(benches) - 1 - i
				}
				b := benches[i]
				clear(b.tallies)
				from := b.pods + turn*r.n // after the existing Pods
				if err := r.work(b, ctx, from, from+r.n); err != nil {
					return fmt.Errorf("%s: %s: %w", b.program, r.key, err)
				}
				for _, t := range b.tallies { // there is only one, that of this row
					if turn >= warm {
						costs[r.key][i] = append(costs[r.key][i], t.amount/t.by)
					}
				}
			}
		}
	}
	return printComparison(programs, turns, costs)
}

func printComparison(programs []string, turns int, costs map[string][][]float64) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%d turns\tserver CPU, median\tratio, median\tquartiles\tof the sums\t\n", turns)
	for _, r := range comparedRows {
		for i, cost := range costs[r.key] {
			ratios := make([]float64, turns)
			for turn := range ratios {
				ratios[turn] = cost[turn] / costs[r.key][0][turn]
			}
			fmt.Fprintf(out, "%s: %s\t%.1f µs\t%.3f\t%.3f – %.3f\t%.3f\t\n", r.key, shown(programs[i]),
				1000*load.Quantile(cost, 0.5), load.Quantile(ratios, 0.5), load.Quantile(ratios, 0.25), load.Quantile(ratios, 0.75),
				sum(cost)/sum(costs[r.key][0]))
		}
	}
	return out.Flush()
}

// shown formats a program with its flags, without their values.
func shown(program string) string {
	words := strings.Fields(program)
	words[0] = filepath.Base(words[0])
	for i, flag := range words {
		words[i], _, _ = strings.Cut(flag, "=")
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
	path, err := b.watched(ctx, 10)
	if err != nil {
		return err
	}
	list, err := b.client.Do(ctx, load.Request{Method: http.MethodGet, Path: path + "?fieldSelector=metadata.name%3Dnone"})
	if err != nil {
		return err
	}
	readers := load.New(b.server, 4)
	b.events = new(atomic.Int64)
	for range comparedWatchers {
		w := &watcher{client: readers, path: path, version: load.ResourceVersion(list),
			events: b.events, size: new(atomic.Int64)}
		if err := w.open(ctx); err != nil {
			return err
		}
		go w.read(ctx)
	}
	return nil
}

const comparedWatchers = 50

// watchTurn changes objects one after the other, each as soon as all watchers have seen the one before. A unit is a
// delivered event.
func (b *bench) watchTurn(ctx context.Context, from, to int) error {
	return b.spend("watch", (to-from)*comparedWatchers, func() error {
		for i := from; i < to; i++ {
			b.serial++
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
				Path: fmt.Sprintf("/api/v1/namespaces/%s/configmaps/watched-%d", namespace, i%10),
				Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, b.serial)})
			if err != nil {
				return err
			}
			began := time.Now()
			for b.events.Load() < int64(b.serial*comparedWatchers) {
				if time.Since(began) > time.Minute {
					return fmt.Errorf("of %d events %d have come", b.serial*comparedWatchers, b.events.Load())
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
				Body: fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, from)})
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
