//go:build !unix

package webhook

import "net"

// canTell says that open cannot tell: http.Transport makes all calls.
const canTell = false

func open(net.Conn) bool { return false }
