//go:build !unix

package server

import "errors"

func share(int, bool, bool) error {
	return errors.New("--permit-address-sharing and --permit-port-sharing are for Unix systems")
}
