//go:build !unix

package background

import "errors"

// Redirect is not there: a file that a program has open cannot be moved away.
func Redirect(string) error { return errors.ErrUnsupported }
