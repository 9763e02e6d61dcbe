package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/load"
)

// flooders are the clients of a flood.
const flooders = 64

// flood measures GETs of one plane, alone and while another one is flooded: by lists, and by writes.
func (s *subject) flood(ctx context.Context) error {
	flooded, other := "flooded", "other"
	for _, plane := range []string{flooded, other} {
		if err := s.createPlane(ctx, s.one, plane); err != nil {
			return err
		}
		if err := s.fill(ctx, plane); err != nil {
			return err
		}
	}
	const listed = 400
	err := load.Each(connections, listed, func(i int) error {
		_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: mapsPath(flooded),
			Body: fmt.Appendf(nil, `{"metadata":{"name":"listed-%d"},"data":{"k":"%0900d"}}`, i, i)})
		return err
	})
	if err != nil {
		return err
	}
	var alone float64
	for _, f := range []struct {
		name string
		ask  func(c *load.Client, i int) error
	}{
		{"alone", nil},
		{fmt.Sprintf("%d list %d", flooders, listed), func(c *load.Client, _ int) error {
			_, err := c.Discard(ctx, load.Request{Method: http.MethodGet, Path: mapsPath(flooded)})
			return err
		}},
		{fmt.Sprintf("%d write", flooders), func(c *load.Client, i int) error {
			_, err := c.Discard(ctx, load.Request{Method: http.MethodPatch, ContentType: "application/merge-patch+json",
				Path: mapsPath(flooded) + "/" + fmt.Sprint("listed-", i%listed),
				Body: fmt.Appendf(nil, `{"data":{"serial":"%d"}}`, i)})
			return err
		}},
	} {
		done, refused, took, err := s.beside(f.ask, other)
		if err != nil {
			return err
		}
		if f.ask == nil {
			alone = took.P99
			s.figure("flood", "another plane's GET alone, p99", alone, "ms")
			continue
		}
		s.figure("flood", f.name+": another plane's GET, p99", took.P99, "ms")
		s.target("flood", f.name+": p99 against alone", took.P99/alone, 5, "×")
		s.figure("flood", f.name+": rate of the flood", float64(done)/s.lasts.Seconds(), "/s")
		s.figure("flood", f.name+": requests refused", float64(refused), "")
	}
	return errors.Join(s.deletePlane(ctx, s.one, flooded), s.deletePlane(ctx, s.one, other))
}

// beside measures GETs of a plane, by a process of its own, while clients ask as fast as they can.
func (s *subject) beside(ask func(*load.Client, int) error, plane string) (done, refused int64, took load.Took,
	err error) {
	clients := load.New(s.server, flooders)
	defer clients.Close()
	var next, refusals atomic.Int64
	var failed atomic.Pointer[error]
	var flooding sync.WaitGroup
	end := time.Now().Add(s.lasts)
	for range flooders {
		if ask == nil {
			break
		}
		flooding.Go(func() {
			for time.Now().Before(end) && failed.Load() == nil {
				err := ask(clients, int(next.Add(1)))
				var status *load.StatusError
				switch {
				case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
					refusals.Add(1)
				case err != nil:
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	stop := load.Reads(s.server, mapsPath(plane)+"/m%d", s.maps)
	time.Sleep(time.Until(end))
	took, err = stop()
	flooding.Wait()
	if first := failed.Load(); first != nil {
		err = errors.Join(err, *first)
	}
	return next.Load() - refusals.Load(), refusals.Load(), took, err
}
