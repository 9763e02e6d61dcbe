// Package balancer is what is in front of several servers: a balancer of TCP connections that asks /readyz, and knows
// nothing else of HTTP.
package balancer

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// Balancer passes connections on to servers that are ready, in turn. What it knows of a server may be as old as
// staleAfter; on a machine that is so slow that it is older, connections wait for the next look. So a server that
// serves for longer than that after /readyz has failed gets no connection when its port is closed, however slow the
// machine is.
type Balancer struct {
	listener net.Listener
	began    time.Time
	servers  []*backend
	next     atomic.Int64
	blind    atomic.Bool
	refused  atomic.Int64 // connections for which no server was there
}

// staleAfter is how old the answer of /readyz may be by which a connection is passed on.
const staleAfter = 500 * time.Millisecond

// backend is a server behind a Balancer. ready is when the last question was sent that it has answered with yes, in ns
// since the Balancer began; 0: it has answered otherwise since, or never.
type backend struct {
	url    string
	client *http.Client
	ready  atomic.Int64
}

// New looks at /readyz of the servers until the test ends.
func New(t testing.TB, servers ...*harness.Server) *Balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{listener: listener, began: time.Now()}
	t.Cleanup(func() { listener.Close() })
	for _, s := range servers {
		one := &backend{url: s.URL, client: s.Client()}
		b.servers = append(b.servers, one)
		go func() {
			for ; t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
				b.look(one)
			}
		}()
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(near)
		}
	}()
	return b
}

// look finds out whether a server is ready.
func (b *Balancer) look(one *backend) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	asked := time.Since(b.began)
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, one.url+"/readyz", nil)
	if err != nil {
		return
	}
	answer, err := one.client.Do(rq)
	if err == nil {
		answer.Body.Close()
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		asked = 0
	}
	one.ready.Store(int64(asked))
}

// choose returns a server that is ready; nil: there is none for a minute.
func (b *Balancer) choose() *backend {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for range b.servers {
			one := b.servers[int(b.next.Add(1))%len(b.servers)]
			if at := one.ready.Load(); b.blind.Load() || at > 0 && time.Since(b.began)-time.Duration(at) < staleAfter {
				return one
			}
		}
	}
	return nil
}

func (b *Balancer) serve(near net.Conn) {
	defer near.Close()
	one := b.choose()
	if one == nil {
		b.refused.Add(1)
		return
	}
	far, err := net.Dial("tcp", strings.TrimPrefix(one.url, "https://"))
	if err != nil { // many balancers try no other one
		b.refused.Add(1)
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, near); far.Close() }()
	_, _ = io.Copy(near, far)
}

// Blind makes the balancer pass connections on to any server, ready or not: a fault that tests have to notice.
func (b *Balancer) Blind() { b.blind.Store(true) }

// Refused is the number of connections for which no server was there.
func (b *Balancer) Refused() int64 { return b.refused.Load() }

// URL is the address of all servers.
func (b *Balancer) URL() string { return "https://" + b.listener.Addr().String() }
