package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"plinth/internal/occupant"
)

// listen opens the port of the API.
func (c *Config) listen(ctx context.Context) (net.Listener, error) {
	var listen net.ListenConfig
	if c.PermitAddressSharing || c.PermitPortSharing {
		listen.Control = func(_, _ string, socket syscall.RawConn) error {
			var failed error
			err := socket.Control(func(descriptor uintptr) {
				failed = share(int(descriptor), c.PermitAddressSharing, c.PermitPortSharing)
			})
			if err != nil {
				return err
			}
			return failed
		}
	}
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(c.BindAddress, strconv.Itoa(c.SecurePort)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		by := ""
		if p, ok := occupant.OfPort(c.SecurePort); ok {
			by = " by " + p.String()
		}
		return nil, fmt.Errorf("--secure-port: port %d is in use%s; another one can be given, 0 picks a free one: %w",
			c.SecurePort, by, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--bind-address: %s is no address of this machine: %w", c.BindAddress, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--secure-port: port %d is not for this user: %w", c.SecurePort, err)
	}
	return listener, err
}
