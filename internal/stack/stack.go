// Package stack makes the stacks of goroutines large before they are needed.
package stack

import "runtime"

// Grow makes the stack of this goroutine as large as a write needs, while it holds few frames. A new goroutine begins
// with a small stack; the runtime doubles a stack that is too small, and each time adjusts and copies all its frames.
// HTTP/2 serves each request on a goroutine of its own, and decoding is recursive, so without this most of the copying
// happens with many frames on the stack, and takes a tenth of a create's processor time (docs/decisions/0004).
//
//go:noinline
func Grow() {
	var buffer [10 << 10]byte
	runtime.KeepAlive(&buffer)
}
