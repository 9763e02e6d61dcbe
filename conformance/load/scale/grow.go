package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// growing is a kind of objects of which there are more and more. They are in ten namespaces.
type growing struct {
	part string
	// path is that of the collection in a namespace, and all that in all namespaces.
	path, all string
	body      func(namespace, name string) []byte
	// updated returns the body of an update of an object as it was read; nil: the object is patched.
	updated func(read []byte, i int) []byte
}

const namespaceCount = 10

func (g *growing) namespace(i int) string { return fmt.Sprintf("scale-%d", i%namespaceCount) }

// name is that of object i, which has one digit of its index in its namespace.
func (g *growing) name(i int) string { return fmt.Sprintf("n%07d", i/namespaceCount) }

func (g *growing) collection(i int) string { return fmt.Sprintf(g.path, g.namespace(i)) }

func (s *subject) leases(ctx context.Context, sizes []int) error {
	const renewed = `"renewTime":"2026-01-01T00:00:`
	return s.grow(ctx, sizes, &growing{
		part: "leases",
		path: "/apis/coordination.k8s.io/v1/namespaces/%s/leases", all: "/apis/coordination.k8s.io/v1/leases",
		body: func(_, name string) []byte {
			return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s"},`+
				`"spec":{"holderIdentity":"%[1]s","leaseDurationSeconds":40,`+renewed+`00.000000Z"}}`, name)
		},
		updated: func(read []byte, i int) []byte {
			before, _, _ := bytes.Cut(read, []byte(renewed))
			_, after, _ := bytes.Cut(read, []byte(`.000000Z"`))
			return fmt.Appendf(nil, "%s"+renewed+`%02d.000000Z"%s`, before, 1+i%59, after)
		},
	})
}

func (s *subject) pods(ctx context.Context, sizes []int) error {
	return s.grow(ctx, sizes, &growing{
		part: "pods",
		path: "/api/v1/namespaces/%s/pods", all: "/api/v1/pods",
		body: func(namespace, name string) []byte { return load.Pod(namespace, name, 0) },
	})
}

// grow creates objects up to each size, and there measures what an object takes in memory, before and after a restart;
// a restart; GETs of a client that does nothing else; updates; pages of a list, and a list of all.
func (s *subject) grow(ctx context.Context, sizes []int, g *growing) error {
	empty, held, err := s.idle(ctx)
	if err != nil {
		return err
	}
	for i := range namespaceCount {
		if err := s.client.Namespace(ctx, g.namespace(i)); err != nil {
			return err
		}
	}
	have := 0
	for _, n := range sizes {
		err := s.spend(g.part, n, "create", n-have, func() error {
			return load.Each(connections, n-have, func(i int) error {
				i += have
				_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: g.collection(i),
					Body: g.body(g.namespace(i), g.name(i))})
				return err
			})
		})
		if err != nil {
			return err
		}
		have = n
		settle()
		if err := s.memory(g.part, n, "", empty); err != nil {
			return err
		}
		if err := s.held(ctx, g.part, n, held); err != nil {
			return err
		}
		if err := s.restart(g.part, n, empty); err != nil {
			return err
		}
		for _, measure := range []func(context.Context, *growing, int) error{s.get, s.update, s.page, s.list} {
			if err := measure(ctx, g, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// restart kills the server and starts it again: three times if that is quick, and then the second longest counts.
func (s *subject) restart(part string, n int, empty load.Memory) error {
	var took []float64
	for range 3 {
		s.client.Close()
		s.one.Close()
		if err := s.server.Restart(); err != nil {
			return err
		}
		took = append(took, s.server.Ready.Seconds())
		if s.server.Ready > 3*time.Second {
			break
		}
	}
	s.client, s.one = load.New(s.server, connections), load.New(s.server, 1)
	spent, err := load.CPU(s.server) // since its start
	if err != nil {
		return err
	}
	s.report(part, n, "restart", load.Quantile(took, 0.5), "s")
	s.report(part, n, "restart-cpu", spent.Seconds(), "s")
	settle()
	return s.memory(part, n, "-restarted", empty)
}

// get measures GETs at a low rate, by a process of its own.
func (s *subject) get(_ context.Context, g *growing, n int) error {
	stop := load.Reads(s.server, g.collection(3)+"/n%07d", n/namespaceCount)
	time.Sleep(5 * time.Second)
	took, err := stop()
	if err != nil {
		return err
	}
	s.report(g.part, n, "get-p50", took.P50, "ms")
	s.report(g.part, n, "get-p99", took.P99, "ms")
	return nil
}

// update measures updates of a part of the objects.
func (s *subject) update(ctx context.Context, g *growing, n int) error {
	count := min(n, 10_000)
	at := func(i int) int { return i * (n / count) }
	bodies := make([][]byte, count)
	if g.updated != nil {
		err := load.Each(connections, count, func(i int) error {
			read, err := s.client.Do(ctx, load.Request{Method: http.MethodGet, Path: g.collection(at(i)) + "/" + g.name(at(i))})
			bodies[i] = g.updated(read, i)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.spend(g.part, n, "update", count, func() error {
		return load.Each(connections, count, func(i int) error {
			rq := load.Request{Method: http.MethodPut, Path: g.collection(at(i)) + "/" + g.name(at(i)), Body: bodies[i]}
			if g.updated == nil {
				rq.Method, rq.ContentType = http.MethodPatch, "application/merge-patch+json"
				rq.Body = fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, n)
			}
			_, err := s.client.Discard(ctx, rq)
			return err
		})
	})
}

// page measures the first page of a list.
func (s *subject) page(ctx context.Context, g *growing, n int) error {
	const times = 50
	var took []float64
	err := s.spend(g.part, n, "page", times, func() error {
		for range times {
			began := time.Now()
			if _, err := s.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: g.all + "?limit=500"}); err != nil {
				return err
			}
			took = append(took, time.Since(began).Seconds()*1000)
		}
		return nil
	})
	if err == nil {
		s.report(g.part, n, "page-p50", load.Quantile(took, 0.5), "ms")
	}
	return err
}

// list measures a list of all objects, and how much more memory the server has meanwhile.
func (s *subject) list(ctx context.Context, g *growing, n int) error {
	if err := load.ResetPeak(s.server); err != nil {
		return err
	}
	before, err := load.MemoryOf(s.server)
	if err != nil {
		return err
	}
	began := time.Now()
	length, err := s.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: g.all})
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := load.MemoryOf(s.server)
	if err != nil {
		return err
	}
	s.report(g.part, n, "list", took.Seconds(), "s")
	s.report(g.part, n, "list-length", float64(length)/(1<<20), "MiB")
	s.report(g.part, n, "list-memory", float64(max(0, after.Peak-before.Anonymous-before.File))/(1<<20), "MiB")
	return nil
}

// namespaces measures how long the deletion of a namespace takes, from the request on, and what GETs beside it take.
func (s *subject) namespaces(ctx context.Context, sizes []int) error {
	const part = "namespace"
	if s.kind == harness.Reference {
		return fmt.Errorf("the reference has no controller that empties namespaces")
	}
	for _, name := range []string{"kept", "emptied"} {
		if err := s.client.Namespace(ctx, name); err != nil {
			return err
		}
	}
	const kept = 100
	create := func(namespace string, n int) error {
		return load.Each(connections, n, func(i int) error {
			_, err := s.client.Discard(ctx, load.Request{Method: http.MethodPost,
				Path: "/api/v1/namespaces/" + namespace + "/configmaps",
				Body: fmt.Appendf(nil, `{"metadata":{"name":"c-%07d","labels":{"app":"web"}},"data":{"a":"b"}}`, i)})
			return err
		})
	}
	if err := create("kept", kept); err != nil {
		return err
	}
	reads := func() func() (load.Took, error) {
		return load.Reads(s.server, "/api/v1/namespaces/kept/configmaps/c-%07d", kept)
	}
	for i, n := range sizes {
		if i > 0 {
			if err := s.client.Namespace(ctx, "emptied"); err != nil {
				return err
			}
		}
		if err := create("emptied", n); err != nil {
			return err
		}
		settle()
		stop := reads()
		time.Sleep(5 * time.Second)
		alone, err := stop()
		if err != nil {
			return err
		}
		s.report(part, n, "get-p99-alone", alone.P99, "ms")
		stop = reads()
		began := time.Now()
		err = s.spend(part, n, "delete", n, func() error { return s.emptied(ctx) })
		took := time.Since(began)
		beside, stopped := stop()
		if err != nil || stopped != nil {
			return fmt.Errorf("%w, %w", err, stopped)
		}
		s.report(part, n, "delete", took.Seconds(), "s")
		s.report(part, n, "get-p99-beside", beside.P99, "ms")
		s.report(part, n, "get-p99-ratio", beside.P99/alone.P99, "×")
	}
	return nil
}

// emptied deletes the namespace and waits until it is gone.
func (s *subject) emptied(ctx context.Context) error {
	const path = "/api/v1/namespaces/emptied"
	if _, err := s.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: path}); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
		_, err := s.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: path})
		if load.Refused(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("it is not gone after 5 minutes")
}
