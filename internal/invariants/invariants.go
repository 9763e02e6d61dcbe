// Package invariants has the switch for assertions. Tests are built with `-tags invariants`, or with the race detector,
// and check conditions that cost too much for a release:
//
//	if invariants.Enabled && used > limit {
//		invariants.Fail("cache: %d bytes of %d", used, limit)
//	}
//
// In a release Enabled is the constant false, and the compiler removes the assertions.
package invariants

import (
	"fmt"
	"os"
	"runtime/debug"
)

// Fail ends the process with a message and the stack of the caller.
//
// A panic would not do. It runs deferred calls and the cleanup of tests first, which may wait for a lock that the
// caller holds, so that a test hangs until its timeout without a message. And net/http recovers from panics of
// handlers, so that a server would go on.
func Fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "panic: invariant: "+format+"\n\n%s", append(args, debug.Stack())...)
	os.Exit(2)
}
