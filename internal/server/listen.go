package server

import (
	"context"
	"net"
	"strconv"
	"syscall"
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
	return listen.Listen(ctx, "tcp", net.JoinHostPort(c.BindAddress, strconv.Itoa(c.SecurePort)))
}
