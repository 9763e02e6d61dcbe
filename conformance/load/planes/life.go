package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"plinth/conformance/internal/load"
)

const planesPath = "/apis/plinth/v1alpha1/planes"

func planeName(i int) string { return fmt.Sprintf("p%06d", i) }

// mapsPath is the collection of a plane's ConfigMaps.
func mapsPath(plane string) string {
	return "/clusters/" + plane + "/api/v1/namespaces/default/configmaps"
}

func mapName(i int) string { return fmt.Sprintf("m%d", i) }

func (s *subject) createPlane(ctx context.Context, c *load.Client, name string) error {
	_, err := c.Discard(ctx, load.Request{Method: http.MethodPost, Path: planesPath,
		Body: fmt.Appendf(nil, `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":%q}}`, name)})
	return err
}

func (s *subject) deletePlane(ctx context.Context, c *load.Client, name string) error {
	_, err := c.Discard(ctx, load.Request{Method: http.MethodDelete, Path: planesPath + "/" + name})
	return err
}

func (s *subject) fill(ctx context.Context, plane string) error {
	for i := range s.maps {
		_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: mapsPath(plane),
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"plane":%q}}`,
				mapName(i), plane)})
		if err != nil {
			return fmt.Errorf("%s: %w", plane, err)
		}
	}
	return nil
}

// read reads a ConfigMap of a plane.
func read(ctx context.Context, c *load.Client, plane string, i int) error {
	_, err := c.Discard(ctx, load.Request{Method: http.MethodGet, Path: mapsPath(plane) + "/" + mapName(i)})
	return err
}

// warm uses a plane and deletes it again, so that what planes share is there, and notes what the server has then.
func (s *subject) warm(ctx context.Context) error {
	if err := s.createPlane(ctx, s.one, "warm"); err != nil {
		return err
	}
	if err := s.fill(ctx, "warm"); err != nil {
		return err
	}
	if err := s.deletePlane(ctx, s.one, "warm"); err != nil {
		return err
	}
	var err error
	s.empty, err = s.rested(ctx)
	s.figure("empty", "live heap and stacks", mib(s.empty.live), "MiB")
	s.figure("empty", "resident memory", mib(s.empty.resident), "MiB")
	s.figure("empty", "goroutines", float64(s.empty.goroutines), "")
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// create creates all planes: a part of them by one client, and the others by several.
func (s *subject) create(ctx context.Context) error {
	alone := min(s.alone, s.planes)
	for _, turn := range []struct{ clients, from, to int }{{1, 0, alone}, {connections, alone, s.planes}} {
		n := turn.to - turn.from
		if n == 0 {
			continue
		}
		var times times
		took, spent, err := s.spend(func() error {
			return load.Each(turn.clients, n, func(i int) error {
				return times.of(func() error { return s.createPlane(ctx, s.client, planeName(turn.from+i)) })
			})
		})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d creates by %d", n, turn.clients)
		if turn.clients == 1 {
			s.took("create", name, times.all, 5)
			s.figure("create", name+", rate", float64(n)/took.Seconds(), "/s")
		} else {
			s.took("create", name, times.all, 0)
			s.atLeast("create", name+", rate", float64(n)/took.Seconds(), 200, "/s")
		}
		s.figure("create", name+", processor time each", spent.Seconds()*1000/float64(n), "ms")
	}
	return nil
}

// idle puts ConfigMaps into all planes, and measures what they hold when nobody uses them.
func (s *subject) idle(ctx context.Context) error {
	took, spent, err := s.spend(func() error {
		return load.Each(connections, s.planes, func(i int) error { return s.fill(ctx, planeName(i)) })
	})
	if err != nil {
		return err
	}
	s.figure("idle", "planes filled", float64(s.planes)/took.Seconds(), "/s")
	s.figure("idle", "processor time to fill a plane", spent.Seconds()*1000/float64(s.planes), "ms")
	began := time.Now()
	if s.full, err = s.rested(ctx); err != nil {
		return err
	}
	s.figure("idle", "time until at rest", time.Since(began).Seconds(), "s")
	s.holds("idle", s.full)
	return s.there(ctx, "idle")
}

// shared is what the server may have for all planes together besides what each may have, in KiB.
const shared = 16 << 10

// holds prints what the planes hold, and checks that it is bounded.
func (s *subject) holds(part string, h held) {
	n := float64(s.planes)
	// With a few planes, most of it is what they share, and what the server itself has more or less of.
	s.bound(part, "live heap and stacks of a plane", float64(h.live-s.empty.live)/1024/n, max(100, shared/n), "KiB")
	s.figure(part, "resident memory of a plane", float64(h.resident-s.empty.resident)/1024/n, "KiB")
	s.figure(part, "resident memory", mib(h.resident), "MiB")
	s.bound(part, "goroutines", float64(h.goroutines), 100, "")
}

// there checks that all planes are there.
func (s *subject) there(ctx context.Context, part string) error {
	list, err := s.one.Do(ctx, load.Request{Method: http.MethodGet, Path: planesPath + "?limit=1"})
	if err != nil {
		return err
	}
	n, err := listed(list)
	if err != nil {
		return err
	}
	s.bound(part, "planes that are missing", float64(s.planes-n), 0, "")
	return nil
}

// listed is how many objects a list of one item says that there are.
func listed(list []byte) (int, error) {
	var page struct {
		Metadata struct{ RemainingItemCount int }
		Items    []json.RawMessage
	}
	err := json.Unmarshal(list, &page)
	return len(page.Items) + page.Metadata.RemainingItemCount, err
}

// restart kills the server and starts it again, and asks planes for the first time: one, and then others that nobody
// has asked yet. The same are asked again after the server has let them go.
func (s *subject) restart(ctx context.Context) error {
	s.client.Close()
	s.one.Close()
	if err := s.server.Restart(); err != nil {
		return err
	}
	s.connect()
	began := time.Now()
	if err := read(ctx, s.one, planeName(0), 0); err != nil {
		return err
	}
	answered := s.server.Ready + time.Since(began)
	s.target("restart", "from exec to ready", s.server.Ready.Seconds(), 5, "s")
	s.target("restart", "from exec to an answer of a plane", answered.Seconds(), 5, "s")
	spent, err := load.CPU(s.server)
	if err != nil {
		return err
	}
	s.figure("restart", "processor time", spent.Seconds(), "s")
	all, checkpoint, err := s.stored()
	if err != nil {
		return err
	}
	s.figure("restart", "size of the data directory", mib(all), "MiB")
	s.figure("restart", "size of the newest checkpoint", mib(checkpoint), "MiB")
	for _, name := range []string{"first GET after the restart", "first GET after a rest"} {
		began := time.Now()
		h, err := s.rested(ctx)
		if err != nil {
			return err
		}
		if name == "first GET after the restart" {
			visits, err := load.CPU(s.server)
			if err != nil {
				return err
			}
			s.figure("restart", "time until at rest", time.Since(began).Seconds(), "s")
			s.figure("restart", "processor time until at rest", (visits - spent).Seconds(), "s")
			s.holds("restart", h)
			if err := s.there(ctx, "restart"); err != nil {
				return err
			}
		}
		n := min(s.planes-1, 200)
		var times times
		_, cpu, err := s.spend(func() error {
			for i := range n {
				plane := planeName(1 + i*((s.planes-1)/n))
				if err := times.of(func() error { return read(ctx, s.one, plane, s.maps-1) }); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.took("restart", name, times.all, 10)
		s.figure("restart", name+", processor time", cpu.Seconds()*1000/float64(n), "ms")
	}
	return nil
}

// keepBusy has planes written and read in turn, as fast as goes.
func (s *subject) keepBusy(ctx context.Context) error {
	n := min(s.busy, s.planes)
	if err := load.Each(connections, n, func(i int) error { return read(ctx, s.client, planeName(i), 0) }); err != nil {
		return err
	}
	var reads, writes times
	until, rounds := time.Now().Add(s.lasts), 0
	took, spent, err := s.spend(func() error {
		for ; rounds == 0 || time.Now().Before(until); rounds++ {
			err := load.Each(connections, n, func(i int) error {
				plane := planeName(i)
				return errors.Join(
					writes.of(func() error { return s.write(ctx, plane, rounds) }),
					reads.of(func() error { return read(ctx, s.client, plane, 0) }))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	h, err := s.held(ctx)
	if err != nil {
		return err
	}
	pairs := float64(rounds * n)
	s.figure("busy", "planes", float64(n), "")
	s.figure("busy", "writes and as many reads", pairs/took.Seconds(), "/s")
	s.took("busy", "write", writes.all, 0)
	s.took("busy", "read", reads.all, 0)
	s.figure("busy", "processor time of a write and a read", spent.Seconds()*1000/pairs, "ms")
	s.figure("busy", "live heap and stacks", mib(h.live), "MiB")
	s.figure("busy", "the same of a busy plane, without idle ones", float64(h.live-s.full.live)/1024/float64(n), "KiB")
	s.figure("busy", "goroutines of a busy plane", float64(h.goroutines-s.full.goroutines)/float64(n), "")
	s.figure("busy", "resident memory", mib(h.resident), "MiB")
	return nil
}

// write changes a ConfigMap of a plane.
func (s *subject) write(ctx context.Context, plane string, serial int) error {
	_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
		Path: mapsPath(plane) + "/" + mapName(0), Body: fmt.Appendf(nil, `{"data":{"serial":"%d"}}`, serial)})
	return err
}

// delete deletes all planes.
func (s *subject) delete(ctx context.Context) error {
	var times times
	took, spent, err := s.spend(func() error {
		return load.Each(connections, s.planes, func(i int) error {
			return times.of(func() error { return s.deletePlane(ctx, s.client, planeName(i)) })
		})
	})
	if err != nil {
		return err
	}
	s.target("delete", fmt.Sprintf("all %d by %d", s.planes, connections), took.Seconds(), 60, "s")
	s.took("delete", "a plane", times.all, 0)
	s.figure("delete", "processor time each", spent.Seconds()*1000/float64(s.planes), "ms")
	if err := read(ctx, s.one, planeName(0), 0); !load.Refused(err) {
		return fmt.Errorf("a plane that was deleted answers, or how it does not is %w", err)
	}
	h, err := s.rested(ctx)
	if err != nil {
		return err
	}
	s.figure("delete", "live heap and stacks", mib(h.live), "MiB")
	// Of a few planes less is left than what the server itself has more or less of from one moment to the next.
	most := max(0.1*mib(s.full.live-s.empty.live), shared/1024)
	s.bound("delete", "what planes have left of it", mib(h.live-s.empty.live), most, "MiB")
	s.target("delete", "the same against the empty server", float64(h.live)/float64(s.empty.live), 1.1, "")
	s.figure("delete", "resident memory", mib(h.resident), "MiB")
	s.bound("delete", "goroutines", float64(h.goroutines), 100, "")
	return nil
}

// times are times of requests, in milliseconds.
type times struct {
	mu  sync.Mutex
	all []float64
}

// of measures a request.
func (t *times) of(ask func() error) error {
	began := time.Now()
	err := ask()
	took := time.Since(began).Seconds() * 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, took)
	return err
}

// spend returns how long some work takes, and what the server's processors do for it.
func (s *subject) spend(work func() error) (took, spent time.Duration, err error) {
	before, err := load.CPU(s.server)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := load.CPU(s.server)
	return took, after - before, err
}
