package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	startTime = 30 * time.Second // until the greeting: the helper may ask the cloud for credentials
	maxLine   = 4 << 10          // of the greeting, and of what is logged at once
)

// process is a helper that runs, as a connection to it.
type process struct {
	cmd    *exec.Cmd
	in     *os.File // its standard input
	out    *os.File // its standard output
	reader *bufio.Reader
	ended  chan struct{}

	mu     sync.Mutex
	closed bool
	broken bool // before it was closed
}

// start starts a helper, and reads its greeting.
func start(ctx context.Context, o *Options) (*process, error) {
	in, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), ours.Close())
	}
	said := &lines{say: o.Said}
	// Not with ctx, which ends with the request that has started the helper.
	p := &process{cmd: exec.Command(o.Program, o.Args...), in: ours, out: from, reader: bufio.NewReader(from),
		ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = in, out, said, grace
	err = errors.Join(p.cmd.Start(), in.Close(), out.Close())
	if err != nil {
		return nil, errors.Join(err, ours.Close(), from.Close())
	}
	go func() {
		err := p.cmd.Wait()
		said.end()
		if err != nil && !p.wasClosed() {
			o.Said("it has ended: " + err.Error())
		}
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { p.kill() })() // a read of a pipe has no context
	if err := p.greeting(); err != nil {
		return nil, errors.Join(context.Cause(ctx), err, p.Close())
	}
	return p, nil
}

// greeting reads the first line of a helper.
func (p *process) greeting() error {
	line, err := p.reader.ReadSlice('\n')
	fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 5)
	if err != nil || len(fields) < 4 || fields[0] != Program {
		return fmt.Errorf("%s is not the program %s that is meant, or has ended: it says %.100q", p.cmd.Path, Program, line)
	}
	switch {
	case fields[1] != fmt.Sprint(protocol):
		return fmt.Errorf("%s, of release %s, speaks version %s of the protocol, and this program version %d: both have to "+
			"be of one release", p.cmd.Path, fields[2], fields[1], protocol)
	case fields[3] == "error" && len(fields) == 5:
		return errors.New(fields[4])
	case fields[3] != "ready":
		return fmt.Errorf("%s says %.100q", p.cmd.Path, line)
	}
	return nil
}

// wasClosed says whether the helper has ended because it was to end.
func (p *process) wasClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed && !p.broken
}

func (p *process) kill() {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
}

// Close closes the connection: the helper sees the end of its input, and ends. It is not waited for.
func (p *process) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	go func() {
		select {
		case <-p.ended:
		case <-time.After(grace):
			p.kill()
		}
	}()
	return errors.Join(p.in.Close(), p.out.Close())
}

// Read implements net.Conn.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.reader.Read(b)
	if err != nil {
		p.mu.Lock()
		p.broken = p.broken || !p.closed
		p.mu.Unlock()
	}
	return n, err
}

// Write implements net.Conn.
func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }

// LocalAddr implements net.Conn.
func (p *process) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (p *process) RemoteAddr() net.Addr { return address{} }

// SetDeadline implements net.Conn.
func (p *process) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (p *process) SetReadDeadline(t time.Time) error { return p.out.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (p *process) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }

// address is that of either end of pipes.
type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return Program }

// lines gives what is written to it to say, line by line. A line that is too long is cut into several.
type lines struct {
	say  func(line string)
	rest []byte
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(b []byte) (int, error) {
	for _, c := range b {
		if c == '\n' || len(l.rest) == maxLine {
			l.end()
		}
		if c != '\n' {
			l.rest = append(l.rest, c)
		}
	}
	return len(b), nil
}

// end says what has no end of a line.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.say(string(l.rest))
	}
	l.rest = l.rest[:0]
}
