package httpapi

import "runtime"

// growStack makes the stack of this goroutine as large as a write needs, while it holds few frames. HTTP/2 serves each
// request on a new goroutine, which begins with a small stack; the runtime doubles a stack that is too small, and each
// time adjusts and copies all its frames. Decoding is recursive, so without this most of the copying happens with many
// frames on the stack, and takes a tenth of a create's processor time (docs/decisions/0004).
//
//go:noinline
func growStack() {
	var buffer [10 << 10]byte
	runtime.KeepAlive(&buffer)
}
