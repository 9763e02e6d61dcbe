//go:build unix

package server

import (
	"errors"

	"golang.org/x/sys/unix"
)

// share lets others listen on the address, or the port, of a socket.
func share(socket int, address, port bool) error {
	var errs []error
	if address {
		errs = append(errs, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	}
	if port {
		errs = append(errs, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}
	return errors.Join(errs...)
}
