package httpapi

import "runtime"

// growStack makes the stack of this goroutine as large as a write needs, while hardly anything is on it. HTTP/2 gives
// each request a goroutine of its own, which begins with a small stack; the runtime doubles it whenever it is too
// small, and each time adjusts and copies all frames that are on it. Decoding is recursive, so without this the
// larger part of that happens many frames down, and takes a tenth of a create's processor time (docs/decisions/0004).
//
//go:noinline
func growStack() {
	var buffer [10 << 10]byte
	runtime.KeepAlive(&buffer)
}
