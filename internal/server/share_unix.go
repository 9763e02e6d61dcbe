//go:build unix

package server

import (
	"errors"

	"golang.org/x/sys/unix"
)

// share allows other sockets to listen on the same address or port.
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
