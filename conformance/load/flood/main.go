// Command flood measures how long the GETs of one user take while another user floods the server: alone, beside
// lists, writes, starts of watches and slow bodies, and beside users of an aggregated API server that works, is killed,
// is stopped, answers garbage or without an end, or has a wrong certificate. It prints, for each kind of flood and each
// server, the GETs' p50 and p99, p99 against that of the GETs alone, how much of the flood the server has done, and the
// server's processor time for each request of it (which other work on the machine changes less than all else).
//
// The reference, Plinth, and other builds of Plinth (-programs) get the same floods in turn, on the same machine.
// All figures of a server are of one start. Of a server with --planes the flood is in one plane and the GETs are in
// another one: what planes do to each other stands beside what users of one server do to each other.
//
// Clients and servers share the machine, and a flood keeps its client as busy as the server. Who measures in the
// process of the flood measures that client: its GETs wait for its own goroutines. So the client of the flood and
// that of the GETs are two processes. Both have the second half of the processors, and the latter a higher
// priority, which it hardly uses; the servers have all processors. What is left of the clients' effect is the floor
// of the method: the rows "of a neighbour" are GETs to an idle server while another one is flooded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"plinth/conformance/internal/harness"
)

func main() {
	err := error(nil)
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == probeCommand:
		err = probe(args[1:])
	case len(args) > 0 && args[0] == loadCommand:
		err = flood(args[1:])
	case len(args) > 0 && args[0] == backendCommand:
		err = serveBackend(args[1:])
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

// pin moves the calling thread, and the processes that it starts, to the second half of the processors.
func pin() error {
	var all, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	n := 0
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			if n++; n > all.Count()/2 {
				set.Set(cpu)
			}
		}
	}
	return unix.SchedSetaffinity(0, &set)
}

// subject is a server that is measured.
type subject struct {
	name   string
	server *harness.Server
	planes bool // whether the two users are in different planes
	flood  user
	other  user
	alone  time.Duration
}

// user is who asks, and where.
type user struct{ url, token string }

func run() error {
	dir := flag.String("dir", "", "where the servers keep their data; a temporary folder by default")
	only := flag.String("only", "", "measure only this server: plinth or reference")
	rows := flag.String("rows", "", "measure only the rows whose name this regular expression matches")
	programs := flag.String("programs", "", "builds of Plinth to measure in place of this one, a comma between them; flags may stand behind a build")
	lasts := flag.Duration("for", 5*time.Second, "how long a measurement lasts")
	many := flag.Int("many", 16000, "the number of objects of the long lists")
	flag.Parse()
	wanted, err := regexp.Compile(*rows)
	if err != nil {
		return err
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "flood-"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	}
	defer harness.Cleanup()
	harness.Release = true
	subjects, err := start(*dir, *only, *programs)
	defer func() {
		for _, s := range subjects {
			s.server.Kill()
		}
	}()
	if err != nil {
		return err
	}
	for _, s := range subjects {
		if err := s.prepare(context.Background(), *many); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Printf("%-33s %-10s %6s %10s %10s %14s  %s\n", "flood", "server", "GETs", "p50", "p99", "against alone", "flood")
	for _, f := range floods {
		if f.ask != nil && !wanted.MatchString(f.name) {
			continue
		}
		for i, s := range subjects {
			flooded := s
			if f.neighbour {
				flooded = subjects[(i+1)%len(subjects)]
			}
			if err := s.measure(f, flooded, *lasts); err != nil {
				return fmt.Errorf("%s: %s: %w", s.name, f.name, err)
			}
		}
	}
	return nil
}

// start runs the servers.
func start(dir, only, programs string) ([]*subject, error) {
	var subjects []*subject
	add := func(name string, kind harness.Kind, program string, flags ...string) error {
		if only != "" && string(kind) != only {
			return nil
		}
		server, err := harness.Start(harness.Options{Kind: kind, Program: program, Flags: flags, Fsync: true,
			Dir: filepath.Join(dir, fmt.Sprint(len(subjects)))})
		if err == nil {
			subjects = append(subjects, &subject{name: name, server: server, planes: slices.Contains(flags, "--planes")})
		}
		return err
	}
	if programs == "" && only != string(harness.Reference) {
		if _, err := harness.Program(); err != nil { // built on all processors
			return nil, err
		}
	}
	if err := add("reference", harness.Reference, ""); err != nil {
		return subjects, err
	}
	if programs == "" {
		if err := add("plinth", harness.Plinth, ""); err != nil {
			return subjects, err
		}
		if err := add("planes", harness.Plinth, "", "--planes", "--planes-egress=127.0.0.0/8"); err != nil {
			return subjects, err
		}
	}
	for program := range strings.SplitSeq(programs, ",") {
		if words := strings.Fields(program); len(words) > 0 {
			if err := add(filepath.Base(words[0]), harness.Plinth, words[0], words[1:]...); err != nil {
				return subjects, err
			}
		}
	}
	runtime.LockOSThread() // for good: from here on the process only waits for others
	return subjects, pin()
}
