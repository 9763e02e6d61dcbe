package replicas

import (
	"bytes"
	"io"
	"math/rand"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is the network from one process to another. Its zero value passes everything on.
type wire struct {
	mu sync.Mutex
	// cut ends connections and refuses new ones. held keeps what is sent without a sign to either side, as a network does
	// that drops packets: there (to where the connection was opened to), and back. slow is how long each piece takes.
	cut, there, back bool
	slow             time.Duration
	loses            int           // how many of a thousand pieces of answers are lost, with their connection
	changed          chan struct{} // closed at the next change
	conns            map[net.Conn]bool
}

// set changes what the wire does.
func (w *wire) set(change func(w *wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
	if w.cut {
		for c := range w.conns {
			c.Close()
		}
	}
}

// heal has the wire pass everything on.
func (w *wire) heal() {
	w.set(func(w *wire) { w.cut, w.there, w.back, w.slow, w.loses = false, false, false, 0, 0 })
}

// pass waits until a piece may go on. It returns false if it never will.
func (w *wire) pass(there bool) bool {
	w.mu.Lock()
	slow := w.slow
	for !w.cut && (there && w.there || !there && w.back) {
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		<-changed
		w.mu.Lock()
	}
	cut := w.cut || !there && rand.Intn(1000) < w.loses
	w.mu.Unlock()
	if slow > 0 && !cut {
		time.Sleep(slow)
	}
	return !cut
}

// connect notes a connection. It returns false if there can be none.
func (w *wire) connect(near, far net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	if w.conns == nil {
		w.conns = map[net.Conn]bool{}
	}
	w.conns[near], w.conns[far] = true, true
	return true
}

// copy passes on what one side sends, until one of them ends.
func (w *wire) copy(to, from net.Conn, there bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !w.pass(there) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// carry serves a connection, whose first bytes have been read already.
func (w *wire) carry(near net.Conn, first []byte, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.connect(near, far) {
		return
	}
	defer func() {
		w.mu.Lock()
		delete(w.conns, near)
		delete(w.conns, far)
		w.mu.Unlock()
	}()
	ended := make(chan struct{}, 2)
	go func() {
		if len(first) == 0 || w.pass(true) {
			if _, err := far.Write(first); err == nil {
				w.copy(far, near, true)
			}
		}
		ended <- struct{}{}
	}()
	go func() { w.copy(near, far, false); ended <- struct{}{} }()
	<-ended
}

// socket is a port of the test that leads to a port of a process, over the wire that choose names.
type socket struct {
	net.Listener
	to string

	mu sync.Mutex
	// choose returns the wire of a connection, with the first bytes if it has read them to decide that.
	choose func(near net.Conn) (*wire, []byte)
	conns  map[net.Conn]bool // since the last change of the choice
}

// change has a socket choose in another way: all connections end, so that the choice is made anew.
func (s *socket) change(choose func(near net.Conn) (*wire, []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = choose
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
}

// listen opens a socket, which leads nowhere yet.
func listen(t testing.TB) *socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &socket{Listener: l}
}

func (s *socket) url() string { return "http://" + s.Addr().String() }

// serve carries connections until the socket is closed.
func (s *socket) serve() {
	for {
		near, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		choose := s.choose
		if s.conns == nil {
			s.conns = map[net.Conn]bool{}
		}
		s.conns[near] = true
		s.mu.Unlock()
		go func() {
			defer func() { s.mu.Lock(); delete(s.conns, near); s.mu.Unlock() }()
			w, first := choose(near)
			if w == nil {
				near.Close()
				return
			}
			w.carry(near, first, s.to)
		}()
	}
}

// always is the choice of a socket with one wire.
func always(w *wire) func(net.Conn) (*wire, []byte) {
	return func(net.Conn) (*wire, []byte) { return w, nil }
}

// fromHeader is the choice of a socket at which members of etcd connect to one of them: each names itself in a header
// of its requests, and keeps its connections to itself. A request without the header is that of a member that starts,
// and goes over rest.
func fromHeader(wires map[string]*wire, rest *wire) func(net.Conn) (*wire, []byte) {
	return func(near net.Conn) (*wire, []byte) {
		var first []byte
		buffer := make([]byte, 4096)
		for !bytes.Contains(first, []byte("\r\n\r\n")) && len(first) < 64<<10 {
			n, err := near.Read(buffer)
			first = append(first, buffer[:n]...)
			if err != nil {
				if err == io.EOF && len(first) > 0 {
					break
				}
				return nil, nil
			}
		}
		for line := range bytes.SplitSeq(first, []byte("\r\n")) {
			name, value, _ := bytes.Cut(line, []byte(": "))
			if bytes.EqualFold(name, []byte("X-Server-From")) {
				if w := wires[string(value)]; w != nil {
					return w, first
				}
			}
		}
		return rest, first
	}
}
