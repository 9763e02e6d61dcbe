package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/load"
)

const (
	watchedNamespace = "watched"
	configMaps       = "/api/v1/namespaces/" + watchedNamespace + "/configmaps"
	// watchesOnConnection is how many watches share a connection.
	watchesOnConnection = 100
)

// watchers measures watches: what an idle one takes in memory, and what an event costs that reaches all of them, or
// one of them.
func (s *subject) watchers(ctx context.Context, sizes []int) error {
	if err := s.client.Namespace(ctx, watchedNamespace); err != nil {
		return err
	}
	created := 0
	for _, n := range sizes {
		err := load.Each(connections, n-created, func(i int) error {
			_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps,
				Body: fmt.Appendf(nil, `{"metadata":{"name":"c-%07d"},"data":{"a":"%0800d"}}`, created+i, i)})
			return err
		})
		if err != nil {
			return err
		}
		created = n
		// As kubelets watch the ConfigMaps of their Pods.
		one := func(i int) string { return fmt.Sprintf("fieldSelector=metadata.name%%3Dc-%07d&", i) }
		if err := s.watch(ctx, "one", n, 1, one, min(n, 5000)); err != nil {
			return err
		}
		if err := s.watch(ctx, "all", n, n, func(int) string { return "" }, 100); err != nil {
			return err
		}
	}
	return nil
}

// watch opens n watches with the given selectors, measures them idle, and changes objects, of which each change
// reaches a number of watchers.
func (s *subject) watch(ctx context.Context, of string, n, reached int, selector func(i int) string,
	changes int) error {
	settle()
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	empty, held, err := s.idle(ctx)
	if err != nil {
		return err
	}
	list, err := s.client.Do(ctx, load.Request{Method: http.MethodGet, Path: configMaps + "?limit=1"})
	if err != nil {
		return err
	}
	readers := load.New(s.server, max(1, n/watchesOnConnection))
	defer readers.Close()
	var events atomic.Int64
	part := "watchers-" + of
	err = s.spend(part, n, "open", n, func() error {
		return load.Each(runtime.NumCPU(), n, func(i int) error {
			response, err := readers.Start(ctx, load.Request{Method: http.MethodGet,
				Path: configMaps + "?" + selector(i) + "watch=1&resourceVersion=" + load.ResourceVersion(list)})
			if err != nil {
				return err
			}
			reading.Go(func() {
				defer response.Body.Close()
				buffer := make([]byte, 2<<10)
				for {
					n, err := response.Body.Read(buffer)
					events.Add(int64(bytes.Count(buffer[:n], []byte("\n"))))
					if err != nil {
						return
					}
				}
			})
			return nil
		})
	})
	if err != nil {
		return err
	}
	settle()
	if err := s.memory(part, n, "", empty); err != nil {
		return err
	}
	if err := s.held(ctx, part, n, held); err != nil {
		return err
	}
	err = s.spend(part, n, "event", changes*reached, func() error { return s.change(ctx, n, changes, reached, &events) })
	if err != nil {
		return err
	}
	settle()
	return s.memory(part, n, "-used", empty)
}

// change changes objects, and waits until the events have arrived. It waits before the watchers lag so far that a
// server ends them.
func (s *subject) change(ctx context.Context, objects, changes, reached int, events *atomic.Int64) error {
	began := time.Now()
	arrived := func(n int) error {
		for events.Load() < int64(n) {
			if time.Since(began) > 4*time.Minute {
				return fmt.Errorf("of %d events %d have arrived", n, events.Load())
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	const lag = 50 // events of each watcher
	err := load.Each(8, changes, func(i int) error {
		if err := arrived((i - lag) * reached); err != nil {
			return err
		}
		_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
			Path: fmt.Sprintf("%s/c-%07d", configMaps, i%objects),
			Body: fmt.Appendf(nil, `{"metadata":{"labels":{"at":"%d-%d"}}}`, reached, i)})
		return err
	})
	if err != nil {
		return err
	}
	return arrived(changes * reached)
}
