package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"plinth/conformance/internal/load"
)

// held is what the server has, when it has nothing to do.
type held struct {
	live       int64 // heap and stacks, after a collection
	resident   int64
	goroutines int
}

// held reads what the server has after a collection.
func (s *subject) held(ctx context.Context) (h held, err error) {
	if h.live, err = load.Held(ctx, s.one); err != nil {
		return h, err
	}
	if h.resident, err = load.RSS(s.server); err != nil {
		return h, err
	}
	goroutines, err := counter(ctx, s.one, "go_goroutines")
	h.goroutines = int(goroutines)
	return h, err
}

// rested waits until the server has let go the planes that nobody uses, and until neither the number of its goroutines
// nor its processor time changes much. Connections have goroutines, too, so there is only one meanwhile.
func (s *subject) rested(ctx context.Context) (held, error) {
	const (
		every    = 250 * time.Millisecond
		quiet    = 4 // times in a row
		patience = 10 * time.Minute
		little   = 25 * time.Millisecond // of processor time
	)
	s.client.Close()
	last, still := -1.0, 0
	for began := time.Now(); still < quiet; {
		if time.Since(began) > patience {
			return held{}, fmt.Errorf("the server does not come to rest: it has %g goroutines", last)
		}
		_, spent, err := s.spend(func() error {
			time.Sleep(every)
			return nil
		})
		if err != nil {
			return held{}, err
		}
		open, err := counter(ctx, s.one, "plinth_planes_open")
		if err != nil {
			return held{}, err
		}
		now, err := counter(ctx, s.one, "go_goroutines")
		if err != nil {
			return held{}, err
		}
		if still++; open > 0 || now > last+2 || now < last-2 || spent > little {
			still = 0
		}
		last = now
	}
	return s.held(ctx)
}

// counter reads a metric without labels.
func counter(ctx context.Context, c *load.Client, name string) (float64, error) {
	text, err := c.Do(ctx, load.Request{Method: http.MethodGet, Path: "/metrics", Accept: "*/*"})
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(string(text), "\n"+name+" ")
	if !ok {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	value, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(value, 64)
}

// stored is the size of the files of the store, and of its newest checkpoint.
func (s *subject) stored() (all, checkpoint int64, err error) {
	var newest time.Time
	err = filepath.WalkDir(filepath.Join(s.server.Dir(), "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all += info.Size()
		if filepath.Ext(path) == ".base" && info.ModTime().After(newest) {
			newest, checkpoint = info.ModTime(), info.Size()
		}
		return nil
	})
	return all, checkpoint, err
}

// profile begins to make profiles of a part: of the processors in its first seconds, and of the heap at its end.
func (s *subject) profile(ctx context.Context, part string) (end func() error) {
	if s.profiles == "" || s.server == nil {
		return func() error { return nil }
	}
	get := func(path, name string) error {
		c := load.New(s.server, 1)
		defer c.Close()
		text, err := c.Do(ctx, load.Request{Method: http.MethodGet, Path: path, Accept: "*/*"})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.profiles, part+"-"+name), text, 0o644)
	}
	done := make(chan error, 1)
	if part == "restart" {
		done <- nil // the server ends before the profile does
	} else {
		go func() { done <- get("/debug/pprof/profile?seconds=10", "cpu.pprof") }()
	}
	return func() error {
		if err := <-done; err != nil {
			return err
		}
		if err := get("/debug/pprof/goroutine?debug=1", "goroutines.txt"); err != nil {
			return err
		}
		return get("/debug/pprof/heap?gc=1", "heap.pprof")
	}
}
