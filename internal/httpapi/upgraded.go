package httpapi

import (
	"context"
	"io"
	"net"
	"sync"
)

// upgraded is a connection that a backend has taken over. It ends with the server.
//
// Most such connections wait most of the time: a shell for its user, a port for its next request. io.Copy takes a
// buffer of 32 KiB for as long as it waits, in each direction. With the methods that io.Copy prefers, a connection
// waits with waitingBuffer bytes, and has a large buffer only while so many bytes come at once that the small one is
// full.
type upgraded struct {
	net.Conn
	release func() bool // keeps the end of the server from closing the connection
}

// waitingBuffer is the size of the buffer of a connection that waits, movingBuffer of one that has much to copy.
const waitingBuffer, movingBuffer = 1 << 10, 32 << 10

var movingBuffers = sync.Pool{New: func() any { return new([movingBuffer]byte) }}

func newUpgraded(connection net.Conn, closing context.Context) *upgraded {
	return &upgraded{connection, context.AfterFunc(closing, func() { connection.Close() })}
}

// Close closes the connection.
func (u *upgraded) Close() error {
	u.release()
	return u.Conn.Close()
}

// WriteTo copies from the connection.
func (u *upgraded) WriteTo(w io.Writer) (int64, error) { return copyWaiting(w, u.Conn) }

// ReadFrom copies to the connection.
func (u *upgraded) ReadFrom(r io.Reader) (int64, error) { return copyWaiting(u.Conn, r) }

// copyWaiting is io.Copy with a small buffer while there is nothing to copy.
func copyWaiting(to io.Writer, from io.Reader) (copied int64, err error) {
	small := make([]byte, waitingBuffer)
	for {
		n, err := copyOnce(to, from, small)
		copied += n
		if err == nil && n == waitingBuffer {
			large := movingBuffers.Get().(*[movingBuffer]byte)
			for err == nil && n >= waitingBuffer {
				n, err = copyOnce(to, from, large[:])
				copied += n
			}
			movingBuffers.Put(large)
		}
		switch {
		case err == io.EOF:
			return copied, nil
		case err != nil:
			return copied, err
		}
	}
}

// copyOnce copies what one read returns.
func copyOnce(to io.Writer, from io.Reader, buffer []byte) (int64, error) {
	n, failed := from.Read(buffer)
	if n > 0 {
		if _, err := to.Write(buffer[:n]); err != nil {
			return int64(n), err
		}
	}
	return int64(n), failed
}
