package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// contender is a server that takes turns with others.
type contender struct {
	name   string
	planes bool
	server *harness.Server
	one    *load.Client
	costs  map[string]*costs // by verb
}

// costs are those of the requests of one verb, in each turn: processor time of a request, allocations of all, and those
// of reading how many there are.
type costs struct{ micros, allocated, reading []float64 }

// allocations are those of one of n requests. What runs beside the requests of a turn allocates, too, so the least is
// theirs.
func (c *costs) allocations(n int) float64 {
	return (load.Quantile(c.allocated, 0) - load.Quantile(c.reading, 0)) / float64(n)
}

// lone measures the price of planes to those who have none: GETs and creates at / of a build from before, of this one,
// and of this one with --planes. They run at the same time and take turns, in an order that changes, so that other load
// on the machine affects all; compared are the ratios in each turn. Each program is a copy that is written now (see
// conformance/load/bench -compare).
func (s *subject) lone(ctx context.Context) (err error) {
	var all []*contender
	defer func() {
		for _, c := range all {
			c.one.Close()
			c.server.Kill()
		}
	}()
	add := func(name, program string, flags ...string) error {
		dir := filepath.Join(s.dir, fmt.Sprint("lone-", len(all)))
		server, err := startCopy(ctx, program, dir, append(flags, "--profiling", "--controllers=*"))
		if err == nil {
			all = append(all, &contender{name: name, planes: slices.Contains(flags, "--planes"), server: server,
				one: load.New(server, 1), costs: map[string]*costs{http.MethodGet: {}, http.MethodPost: {}}})
		}
		return err
	}
	if s.before != "" {
		if err := add("before", s.before); err != nil {
			return err
		}
	}
	if err := errors.Join(add("now", s.program), add("now --planes", s.program, "--planes")); err != nil {
		return err
	}
	const warm = 3 // turns that do not count
	for turn := range s.turns + warm {
		for i := range all {
			i = (i + turn) % len(all)
			if turn%2 == 1 {
				i = len(all) - 1 - i
			}
			for _, verb := range []string{http.MethodPost, http.MethodGet} {
				c := all[i].costs[verb]
				if turn < warm {
					c = &costs{}
				}
				if err := all[i].turn(ctx, verb, turn, s.requests, c); err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}
			}
		}
	}
	s.compared(all)
	return nil
}

// startCopy starts a copy of a program; one that is no file is a revision of the repository.
func startCopy(ctx context.Context, program, dir string, flags []string) (*harness.Server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(program)
	if errors.Is(err, fs.ErrNotExist) {
		if program, err = harness.ProgramAt(ctx, dir, program); err == nil {
			text, err = os.ReadFile(program)
		}
	}
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "plinth")
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		return nil, err
	}
	return harness.Start(harness.Options{Kind: harness.Plinth, Program: copied, Dir: dir, Flags: flags})
}

// turn sends n requests, and adds what they cost.
func (c *contender) turn(ctx context.Context, verb string, turn, n int, to *costs) error {
	const maps = "/api/v1/namespaces/default/configmaps"
	var allocated [3]float64
	for i := range 2 {
		var err error
		if allocated[i], err = counter(ctx, c.one, "go_memstats_mallocs_total"); err != nil {
			return err
		}
	}
	before, err := load.CPU(c.server)
	if err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprintf("m%d-%d", turn, i)
		rq := load.Request{Method: verb, Path: maps + "/" + name}
		if verb == http.MethodPost {
			rq.Path, rq.Body = maps, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},`+
				`"data":{"k":"v"}}`, name)
		}
		if _, err := c.one.Discard(ctx, rq); err != nil {
			return err
		}
	}
	after, err := load.CPU(c.server)
	if err != nil {
		return err
	}
	allocated[2], err = counter(ctx, c.one, "go_memstats_mallocs_total")
	to.micros = append(to.micros, float64((after-before).Nanoseconds())/1000/float64(n))
	to.reading = append(to.reading, allocated[1]-allocated[0])
	to.allocated = append(to.allocated, allocated[2]-allocated[1])
	return err
}

// compared prints the costs, and those of each server against those of the first one.
func (s *subject) compared(all []*contender) {
	for _, verb := range []string{http.MethodGet, http.MethodPost} {
		first := all[0].costs[verb]
		for i, c := range all {
			own, name := c.costs[verb], verb+": "+c.name
			s.figure("lone", name+", processor time", load.Quantile(own.micros, 0.5), "µs")
			allocations, most := own.allocations(s.requests), first.allocations(s.requests)+1
			switch {
			case i == 0:
				s.figure("lone", name+", allocations", allocations, "")
				continue
			case c.planes:
				s.target("lone", name+", allocations", allocations, most, "")
			default:
				s.bound("lone", name+", allocations", allocations, most, "")
			}
			var ratios []float64
			for turn, micros := range own.micros {
				ratios = append(ratios, micros/first.micros[turn])
			}
			low, high := interval(ratios)
			s.figure("lone", name+" against "+all[0].name+", median", load.Quantile(ratios, 0.5), "×")
			s.target("lone", name+" …, 95 % interval from", low, 1.05, "×")
			s.figure("lone", name+" …, 95 % interval to", high, "×")
		}
	}
}

// interval is a confidence interval of the median, of at least 95 % if there are six values or more.
//
// Each value is below the median of all possible ones with probability 1/2, so how many are is binomial: the median is
// below the k-th smallest value with probability P(at most k−1 of n), and above the k-th largest with the same. k is
// the largest for which this is at most 2.5 %. Nothing is assumed of how the values are distributed.
func interval(values []float64) (low, high float64) {
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	k, exactly, sum := 0, 1.0, 0.0 // exactly: the probability of k of n, 2ⁿ times
	all := 1.0
	for range n {
		all *= 2
	}
	for ; k < n/2; k++ {
		if sum += exactly; sum/all > 0.025 {
			break
		}
		exactly = exactly * float64(n-k) / float64(k+1)
	}
	k = max(k, 1)
	return sorted[k-1], sorted[n-k]
}
