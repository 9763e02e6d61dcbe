package replicas

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String()
}

// dial connects to a socket.
func dial(t *testing.T, s *socket) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// A wire passes on, holds what is sent until it is healed, and cuts.
func TestWire(t *testing.T) {
	w := &wire{}
	s := listen(t)
	s.to, s.choose = echo(t), always(w)
	go s.serve()
	c, lines := dial(t, s)
	ask := func(text string) string {
		fmt.Fprintln(c, text)
		line, _ := lines.ReadString('\n')
		return strings.TrimSpace(line)
	}
	if got := ask("one"); got != "one" {
		t.Errorf("it answers %q", got)
	}
	for _, there := range []bool{true, false} {
		w.set(func(w *wire) { w.there, w.back = there, !there })
		answered := make(chan string, 1)
		go func() { answered <- ask("two") }()
		select {
		case got := <-answered:
			t.Errorf("it answers %q over a wire that holds (there %t)", got, there)
		case <-time.After(50 * time.Millisecond):
		}
		w.heal()
		if got := <-answered; got != "two" {
			t.Errorf("healed, it answers %q", got)
		}
	}
	w.set(func(w *wire) { w.there = true })
	answered := make(chan string, 1)
	go func() { answered <- ask("three") }()
	time.Sleep(20 * time.Millisecond)
	w.set(func(w *wire) { w.cut = true })
	if got := <-answered; got != "" {
		t.Errorf("it answers %q over a wire that is cut", got)
	}
	if c, lines = dial(t, s); ask("four") != "" {
		t.Error("a wire that is cut takes a connection")
	}
	w.heal()
	if c, lines = dial(t, s); ask("five") != "five" {
		t.Error("a wire that is healed takes no connection")
	}
}

// Connections of members go over the wires of the members that they name.
func TestWiresByHeader(t *testing.T) {
	one, rest := &wire{}, &wire{}
	s := listen(t)
	s.to, s.choose = echo(t), fromHeader(map[string]*wire{"1a": one}, rest)
	go s.serve()
	for header, want := range map[string]bool{"x-server-from: 1a": false, "X-Server-From: 2b": true, "Host: a": true} {
		one.set(func(w *wire) { w.cut = true })
		c, lines := dial(t, s)
		fmt.Fprintf(c, "GET /raft HTTP/1.1\r\n%s\r\n\r\n", header)
		if line, _ := lines.ReadString('\n'); (line != "") != want {
			t.Errorf("%s: %q", header, line)
		}
	}
}
