//go:build unix

package webhook

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// canTell says that open can tell.
const canTell = true

// open says whether a connection on which nothing is expected is open: neither its end has come on it, nor data, which
// would be the answer to no call.
func open(c net.Conn) bool {
	of, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		come := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(come[:], 0)
		quiet = n == 0 && err == nil
	})
	return quiet && err == nil
}
