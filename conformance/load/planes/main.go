// Command planes measures what planes cost: `plinth serve --planes`, started on an empty directory, with every commit
// synced to disk before it is answered. It prints a table: what was measured, the figure, and the target, if there is
// one. Its parts, in this order:
//
//	create   planes are created, by one client and by sixteen
//	idle     -planes of them have ten ConfigMaps each, and nobody uses them
//	restart  the server is killed and started again; planes are asked for the first time
//	busy     -busy planes are written and read, in turn
//	delete   all planes are deleted
//	lone     GETs and creates of a server without planes, and at / of one with them, against an older build (-before)
//
// Figures of time depend on the machine, and a target that is missed is only printed. What can be counted (goroutines,
// bytes that are live after a collection, allocations, planes that are there) is a bound: the program fails when one
// is broken, with a table that is complete. Client and server share the machine.
//
// What a flood of one plane does to another one is measured by load/flood.
//
//	go run ./load/planes -before PROGRAM
//	go run ./load/planes -parts create,idle,restart -profiles DIR
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

func main() {
	reader, err := load.Reading(os.Args)
	if !reader {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "planes:", err)
		os.Exit(1)
	}
}

// settings say how much is measured.
type settings struct {
	dir      string
	program  string // "": one that is built
	before   string // an older build; "": there is none
	profiles string // the directory of profiles; "": none are made
	planes   int
	maps     int // in each plane
	alone    int // how many planes one client creates, before sixteen create the others
	busy     int
	lasts    time.Duration // how long the part busy takes
	turns    int           // of the part lone
	requests int           // of each verb in each of these turns
}

func run() error {
	var s settings
	flag.StringVar(&s.dir, "dir", "", "where the servers keep their data, which stay there; a temporary folder by default")
	flag.StringVar(&s.program, "program", "", "the build of Plinth, in place of this one")
	flag.StringVar(&s.before, "before", "", "a build from before, or a revision of which one is built, with which lone compares")
	flag.StringVar(&s.profiles, "profiles", "", "a directory for profiles of the server in each part")
	flag.IntVar(&s.planes, "planes", 10_000, "the number of planes")
	flag.IntVar(&s.maps, "maps", 10, "the number of ConfigMaps in each plane")
	flag.IntVar(&s.alone, "alone", 500, "how many of the planes one client creates, before sixteen create the others")
	flag.IntVar(&s.busy, "busy", 1000, "the number of planes that are busy at a time")
	flag.DurationVar(&s.lasts, "for", 20*time.Second, "how long the part busy takes")
	flag.IntVar(&s.turns, "turns", 15, "the turns of the part lone")
	flag.IntVar(&s.requests, "requests", 400, "the GETs, and the creates, in each of these turns")
	wanted := flag.String("parts", strings.Join(names(), ","), "the parts, a comma between them")
	flag.Parse()
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "planes-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dir = dir
	}
	defer harness.Cleanup()
	harness.Release = true
	return measure(context.Background(), s, strings.Split(*wanted, ","), os.Stdout)
}

// parts are what is measured. Each one needs what those before it have made, except for the part lone.
var parts = []struct {
	name    string
	measure func(*subject, context.Context) error
}{
	{"create", (*subject).create},
	{"idle", (*subject).idle},
	{"restart", (*subject).restart},
	{"busy", (*subject).keepBusy},
	{"delete", (*subject).delete},
	{"lone", (*subject).lone},
}

func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// subject is a server with planes, and what was found.
type subject struct {
	settings
	out    io.Writer
	server *harness.Server
	client *load.Client // on many connections
	one    *load.Client // on one
	empty  held         // before the first plane
	full   held         // with all planes, idle
	broken []error      // bounds
}

// connections are those of the client that has many.
const connections = 16

func measure(ctx context.Context, set settings, wanted []string, out io.Writer) (err error) {
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	s := &subject{settings: set, out: out}
	if s.program == "" {
		if s.program, err = harness.Program(); err != nil {
			return err
		}
	}
	if s.profiles != "" {
		if err := os.MkdirAll(s.profiles, 0o755); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%-9s %-44s %12s %-8s %s\n", "part", "figure", "value", "unit", "target")
	defer s.stop()
	for _, p := range parts {
		if !slices.Contains(wanted, p.name) {
			continue
		}
		if p.name == "lone" {
			s.stop()
		} else if s.server == nil {
			if err := s.start(ctx); err != nil {
				return err
			}
		}
		end := s.profile(ctx, p.name)
		err := p.measure(s, ctx)
		if err := errors.Join(err, end()); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return errors.Join(s.broken...)
}

// start starts the server with planes. It has all controllers, unlike those of other loads, which are measured beside
// the reference: what they make in each plane is part of its price.
func (s *subject) start(ctx context.Context) (err error) {
	s.server, err = harness.Start(harness.Options{Kind: harness.Plinth, Program: s.program,
		Dir: filepath.Join(s.dir, "planes"), Flags: []string{"--planes", "--profiling", "--controllers=*"}})
	if err != nil {
		return err
	}
	s.connect()
	return s.warm(ctx)
}

func (s *subject) connect() { s.client, s.one = load.New(s.server, connections), load.New(s.server, 1) }

func (s *subject) stop() {
	if s.server == nil {
		return
	}
	s.client.Close()
	s.one.Close()
	s.server.Kill()
	s.server = nil
}

// figure prints a figure that has no target.
func (s *subject) figure(part, name string, value float64, unit string) {
	s.print(part, name, value, unit, "")
}

func (s *subject) print(part, name string, value float64, unit, target string) {
	fmt.Fprintf(s.out, "%-9s %-44s %12.4g %-8s %s\n", part, name, value, unit, target)
}

// target prints a figure that should be at most some value.
func (s *subject) target(part, name string, value, most float64, unit string) {
	s.print(part, name, value, unit, fmt.Sprintf("≤ %.4g%s", most, said(value <= most)))
}

// atLeast prints a figure that should be at least some value.
func (s *subject) atLeast(part, name string, value, least float64, unit string) {
	s.print(part, name, value, unit, fmt.Sprintf("≥ %g%s", least, said(value >= least)))
}

func said(reached bool) string {
	if reached {
		return ""
	}
	return ", missed"
}

// bound prints a figure that must be at most some value.
func (s *subject) bound(part, name string, value, most float64, unit string) {
	s.target(part, name, value, most, unit)
	if !(value <= most) {
		s.broken = append(s.broken, fmt.Errorf("%s: %s: %.4g %s, want at most %g", part, name, value, unit, most))
	}
}

// took prints two quantiles of times in milliseconds; most is the target of the first one, 0: there is none.
func (s *subject) took(part, name string, times []float64, most float64) {
	if most > 0 {
		s.target(part, name+", p50", load.Quantile(times, 0.5), most, "ms")
	} else {
		s.figure(part, name+", p50", load.Quantile(times, 0.5), "ms")
	}
	s.figure(part, name+", p99", load.Quantile(times, 0.99), "ms")
}
