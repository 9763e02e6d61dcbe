//go:build !unix

package filelog

import "io"

// share does nothing: the system refuses to open what a process has open for writing.
func share(string) (io.Closer, error) { return io.NopCloser(nil), nil }
