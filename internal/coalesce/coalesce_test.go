package coalesce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a connection that notes what is written to it.
type recorder struct {
	net.Conn
	mu     sync.Mutex
	writes []string
	fails  error
	closed bool
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails != nil {
		return 0, r.fails
	}
	r.writes = append(r.writes, string(b))
	return len(b), nil
}

func (r *recorder) Close() error { r.closed = true; return nil }

// text is all that has been written.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all bytes.Buffer
	for _, w := range r.writes {
		all.WriteString(w)
	}
	return all.String()
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("%d of %d bytes written: %v", n, len(text), err)
	}
}

func TestConn(t *testing.T) {
	large := string(make([]byte, small+1))
	for _, c := range []struct {
		name             string
		do               func(t *testing.T, c *conn, announce func())
		atOnce, inTheEnd string
	}{
		{"not announced", func(t *testing.T, c *conn, _ func()) { write(t, c, "a") }, "a", "a"},
		{"announced, and nothing follows", func(t *testing.T, c *conn, announce func()) { announce(); write(t, c, "a") }, "", "a"},
		{"announced, and it follows", func(t *testing.T, c *conn, announce func()) { announce(); write(t, c, "a"); write(t, c, "b") }, "ab", "ab"},
		{"once", func(t *testing.T, c *conn, announce func()) {
			announce()
			write(t, c, "a")
			write(t, c, "b")
			write(t, c, "c")
		}, "abc", "abc"},
		{"two answers at once", func(t *testing.T, c *conn, announce func()) {
			announce()
			write(t, c, "a")
			announce()
			write(t, c, "b")
			write(t, c, "c")
			write(t, c, "d")
		}, "abcd", "abcd"},
		{"a large one is not held back", func(t *testing.T, c *conn, announce func()) { announce(); write(t, c, large); write(t, c, "b") }, large + "b", large + "b"},
		{"a large one follows", func(t *testing.T, c *conn, announce func()) { announce(); write(t, c, "a"); write(t, c, large) }, "a" + large, "a" + large},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{}
				held := newConn(r)
				ctx := Remember(t.Context(), held)
				c.do(t, held, func() { Announce(ctx) })
				if got := r.text(); got != c.atOnce {
					t.Errorf("at once %q, want %q", got, c.atOnce)
				}
				time.Sleep(2 * hold)
				synctest.Wait()
				if got := r.text(); got != c.inTheEnd {
					t.Errorf("in the end %q, want %q", got, c.inTheEnd)
				}
				if err := held.Close(); err != nil || !r.closed {
					t.Error("it is not closed")
				}
			})
		})
	}
}

// That a write failed which was held back is told to the next one, and to all behind it.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		r := &recorder{fails: broken}
		c := newConn(r)
		ctx := Remember(t.Context(), c)
		Announce(ctx)
		write(t, c, "a")
		time.Sleep(2 * hold)
		synctest.Wait()
		r.fails = nil
		for range 2 {
			if n, err := c.Write([]byte("b")); n != 0 || err != broken {
				t.Errorf("%d, %v", n, err)
			}
		}
		if r.text() != "" {
			t.Errorf("%q is written behind what is missing", r.text())
		}
		Announce(context.Background()) // a connection that is not ours
		c = newConn(&recorder{fails: broken})
		Announce(Remember(t.Context(), c))
		write(t, c, "a")
		if n, err := c.Write([]byte("b")); n != 0 || err != broken {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Whoever writes and whatever is announced: all bytes arrive, in their order.
func TestOrder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	read := make(chan string, 1)
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			read <- err.Error()
			return
		}
		defer c.Close()
		text, err := io.ReadAll(c)
		read <- fmt.Sprint(string(text), err)
	}()
	c, err := Listen(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx := Remember(t.Context(), c)
	var mu sync.Mutex // TLS lets one write at a time
	var want bytes.Buffer
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 300 {
				if random.IntN(2) == 0 {
					Announce(ctx)
				}
				text := fmt.Sprintf("%d.%d%*s;", w, i, random.IntN(2*small), "")
				mu.Lock()
				want.WriteString(text)
				write(t, c, text)
				mu.Unlock()
				if random.IntN(50) == 0 {
					time.Sleep(2 * hold)
				}
			}
		})
	}
	writers.Wait()
	time.Sleep(3 * hold)
	c.Close()
	if got := <-read; got != want.String()+"<nil>" {
		t.Errorf("%d bytes arrive, and not the %d that were written in their order", len(got), want.Len())
	}
}
