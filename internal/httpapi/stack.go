package httpapi

import "runtime"

// deepen makes the stack of this goroutine as large as a write needs. HTTP/2 gives each request a goroutine of its own, with
// a small stack that is doubled, and copied, whenever it is too small: the later, the more frames there are to be copied.
//
//go:noinline
func deepen() {
	var room [10 << 10]byte
	runtime.KeepAlive(&room)
}
