// Package invariants says whether the program checks itself while it runs. Tests are built with `-tags invariants`,
// or with the race detector, and check things that cost too much for a release:
//
//	if invariants.Enabled && used > limit {
//		invariants.Fail("cache: %d bytes of %d", used, limit)
//	}
//
// In a release Enabled is false, and the compiler leaves out all of that.
package invariants

import (
	"fmt"
	"os"
	"runtime/debug"
)

// Fail ends the process with a message and the stack of the caller.
//
// The obvious way, a panic, does not fail closed. It runs deferred calls and the clean-up of tests first, which may
// wait for a lock that the caller holds, so that a test hangs until its time-out and does not say why; and net/http
// recovers from panics of handlers, so that a server would go on.
func Fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "panic: invariant: "+format+"\n\n%s", append(args, debug.Stack())...)
	os.Exit(2)
}
