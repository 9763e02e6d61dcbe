// Command scale measures how Plinth's figures grow with what a server has: objects, watchers, definitions. Its parts:
//
//	leases       small objects, 1,000 to 1,000,000 by default
//	pods         Pods with two containers, 1,000 to 100,000
//	namespace    a namespace of 100,000 objects is deleted, and another client GETs meanwhile
//	watchers     10,000 watches, of the same objects and of one object each
//	definitions  5,000 custom types
//
// The parts that grow measure the same at each size: see grow.go. Memory is that of the server's processes in /proc,
// anonymous memory and mapped files (the program) apart; processor time is that of the server's processes, which
// share the machine with the client. All writes are synced to disk before they are answered. With -only reference,
// the reference and its etcd are measured, which takes long for the larger sizes.
//
//	go run ./load/scale -parts leases -data ../docs/scale.csv
//	go run ./load/scale plot ../docs/scale.csv ../docs/scale.svg
//
// The second command draws the figures: see plot.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

func main() {
	reader, err := load.Reading(os.Args)
	switch {
	case reader:
	case len(os.Args) == 4 && os.Args[1] == "plot":
		err = plot(os.Args[2], os.Args[3])
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// subject is a server that is measured.
type subject struct {
	kind    harness.Kind
	program string   // the plinth to run; "" for one that is built
	flags   []string // of the server
	dir     string
	data    *os.File // gets a line for each figure; nil: there is no file

	server *harness.Server
	client *load.Client // on many connections
	one    *load.Client // on one, as client-go has it
}

// connections is the number of connections of clients that write.
const connections = 32

// parts are what can be measured, and the sizes at which each is measured by default.
var parts = []struct {
	name    string
	sizes   string
	measure func(s *subject, ctx context.Context, sizes []int) error
}{
	{"leases", "1000,10000,100000,1000000", (*subject).leases},
	{"pods", "1000,10000,100000", (*subject).pods},
	{"namespace", "100000", (*subject).namespaces},
	{"watchers", "10000", (*subject).watchers},
	{"definitions", "5000", (*subject).definitions},
}

func run() error {
	dir := flag.String("dir", "", "where the server keeps its data, which stay there; a temporary folder by default")
	only := flag.String("only", string(harness.Plinth), "the server: plinth or reference")
	program := flag.String("program", "", "the build of Plinth, in place of this one; flags may stand behind it")
	wanted := flag.String("parts", "leases,pods,namespace,watchers,definitions", "the parts, a comma between them")
	sizes := flag.String("sizes", "", "the sizes of each part, ascending, a comma between them, in place of its own ones")
	data := flag.String("data", "", "a CSV file, to which the figures are appended")
	flag.Parse()
	if *only != string(harness.Reference) && *only != string(harness.Plinth) {
		return fmt.Errorf("-only %s: want %s or %s", *only, harness.Reference, harness.Plinth)
	}
	var err error
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "scale-"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	}
	defer harness.Cleanup()
	harness.Release = true
	s := &subject{kind: harness.Kind(*only)}
	if words := strings.Fields(*program); len(words) > 0 {
		s.program, s.flags = words[0], words[1:]
	} else if s.kind == harness.Plinth {
		if _, err := harness.Program(); err != nil { // built before anything is measured
			return err
		}
	}
	if s.kind == harness.Plinth {
		s.flags = append(s.flags, "--profiling") // for the size of the live heap
	}
	if *data != "" {
		if s.data, err = openData(*data); err != nil {
			return err
		}
		defer s.data.Close()
	}
	for _, name := range strings.Split(*wanted, ",") {
		if err := s.part(*dir, name, *sizes); err != nil {
			return fmt.Errorf("%s: %s: %w", s.kind, name, err)
		}
	}
	return nil
}

// part measures one part, on a server of its own.
func (s *subject) part(dir, name, sizes string) error {
	for _, p := range parts {
		if p.name != name {
			continue
		}
		if sizes == "" {
			sizes = p.sizes
		}
		var numbers []int
		for text := range strings.SplitSeq(sizes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			numbers = append(numbers, n)
		}
		if !slices.IsSorted(numbers) {
			return fmt.Errorf("the sizes %s are not ascending", sizes)
		}
		s.dir = filepath.Join(dir, fmt.Sprintf("%s-%s", s.kind, name))
		if err := s.start(); err != nil {
			return err
		}
		defer func() {
			s.client.Close()
			s.one.Close()
			s.server.Kill()
		}()
		return p.measure(s, context.Background(), numbers)
	}
	return fmt.Errorf("there is no such part")
}

func (s *subject) start() error {
	var err error
	s.server, err = harness.Start(harness.Options{Kind: s.kind, Program: s.program, Flags: s.flags, Fsync: true,
		Dir: s.dir})
	if err != nil {
		return err
	}
	s.client, s.one = load.New(s.server, connections), load.New(s.server, 1)
	return nil
}

// report prints a figure, and appends it to the data. n is the size at which it was measured.
func (s *subject) report(part string, n int, figure string, value float64, unit string) {
	fmt.Printf("%-10s %-12s %8d  %-24s %12.4g %s\n", s.kind, part, n, figure, value, unit)
	if s.data != nil {
		fmt.Fprintf(s.data, "%s,%s,%d,%s,%.4g,%s\n", s.kind, part, n, figure, value, unit)
	}
}

// settle waits until a server that has nothing to do has finished what its last requests have begun: a checkpoint, a
// collection.
func settle() { time.Sleep(5 * time.Second) }

// memory reports the memory of the server, and what it has more than with nothing, for each of n.
func (s *subject) memory(part string, n int, when string, empty load.Memory) error {
	now, err := load.MemoryOf(s.server)
	if err != nil {
		return err
	}
	s.report(part, n, "anonymous"+when, float64(now.Anonymous)/(1<<20), "MiB")
	s.report(part, n, "file"+when, float64(now.File)/(1<<20), "MiB")
	s.report(part, n, "anonymous-each"+when, float64(now.Anonymous-empty.Anonymous)/1000/float64(n), "kB")
	return nil
}

// held reports the live heap and the stacks after a garbage collection, without those of the empty server.
func (s *subject) held(ctx context.Context, part string, n int, empty int64) error {
	if s.kind != harness.Plinth {
		return nil
	}
	now, err := load.Held(ctx, s.one)
	if err != nil {
		return err
	}
	s.report(part, n, "held-each", float64(now-empty)/1000/float64(n), "kB")
	return nil
}

// idle is the memory of the server as it was started.
func (s *subject) idle(ctx context.Context) (empty load.Memory, held int64, err error) {
	time.Sleep(2 * time.Second)
	if empty, err = load.MemoryOf(s.server); err == nil && s.kind == harness.Plinth {
		held, err = load.Held(ctx, s.one)
	}
	return empty, held, err
}

// spend does n units of work, and reports what the server's processors did for each of them, and how many were done in
// a second.
func (s *subject) spend(part string, size int, figure string, n int, work func() error) error {
	before, err := load.CPU(s.server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := load.CPU(s.server)
	if err != nil {
		return err
	}
	s.report(part, size, figure+"-cpu", float64((after-before).Microseconds())/float64(n), "µs")
	s.report(part, size, figure+"-rate", float64(n)/took.Seconds(), "/s")
	return nil
}

// header is the first line of the data.
const header = "server,part,objects,figure,value,unit\n"

// openData opens a file to append figures to.
func openData(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() == 0 {
		_, err = file.WriteString(header)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
